package iptables

import (
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// ownersFile says which interface has which rules, which the rules don't: a line for each. It is written before the rules
// are made and after they are removed. It is in /run because it means nothing after a reboot, as the rules.
//
//	ports net 0123456789ab eth0 ipv4 -A CNI-DN-e8f6f419596f7f47b3468 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.88.0.2:80
const ownersFile = "/run/cnibox/iptables.owners" // earlier versions have a directory /run/cnibox/iptables

// owner is an attachment, for one of the things that it has rules for.
type owner struct {
	use string
	key plugin.Key
}

// readOwned returns the rules of all owners.
func readOwned() (list []rule, err error) {
	lines, err := state.ReadLines(ownersFile)
	for _, line := range lines {
		const fields = 8
		w := strings.SplitN(line, " ", fields)
		for _, f := range families() {
			if len(w) == fields && w[4] == f.name {
				o := owner{w[0], plugin.Key{Network: w[1], ContainerID: w[2], IfName: w[3]}}
				list = append(list, rule{family: f, chain: w[6], spec: w[7], first: w[5] == "-I", owner: o})
			}
		}
	}
	return list, err
}

func writeOwned(list []rule) error {
	var lines []string
	for _, r := range list {
		key := r.owner.key
		lines = append(lines, strings.Join([]string{r.owner.use, key.Network, key.ContainerID, key.IfName, r.family.name, r.add()}, " "))
	}
	return state.WriteLines(ownersFile, lines, 0o644)
}
