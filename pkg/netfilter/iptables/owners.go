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

// holding is a rule that an owner has.
type holding struct {
	owner
	rule rule
}

// owners are all holdings.
type owners []holding

func readOwners() (list owners, err error) {
	lines, err := state.ReadLines(ownersFile)
	for _, line := range lines {
		const fields = 8
		w := strings.SplitN(line, " ", fields)
		for _, f := range families() {
			if len(w) == fields && w[4] == f.name {
				o := owner{w[0], plugin.Key{Network: w[1], ContainerID: w[2], IfName: w[3]}}
				list = append(list, holding{o, rule{family: f, chain: w[6], spec: w[7], first: w[5] == "-I"}})
			}
		}
	}
	return list, err
}

func (list owners) write() error {
	var lines []string
	for _, h := range list {
		words := []string{h.use, h.key.Network, h.key.ContainerID, h.key.IfName, h.rule.family.name, h.rule.add()}
		lines = append(lines, strings.Join(words, " "))
	}
	return state.WriteLines(ownersFile, lines, 0o644)
}

func (list owners) rules() (rules []rule) {
	for _, h := range list {
		rules = append(rules, h.rule)
	}
	return rules
}

// of returns the rules that an owner has.
func (list owners) of(o owner) []rule {
	return owners(filter(list, func(h holding) bool { return h.owner == o })).rules()
}

// about returns the rules of containers' chains, and the jumps to them.
func (list owners) about(f *family, chains []string) []rule {
	return filter(in(f, list.rules()), func(r rule) bool { return r.isAbout(chains) })
}

// with gives an owner more rules.
func (list owners) with(o owner, rules []rule) owners {
	for _, r := range rules {
		list = append(list, holding{o, r})
	}
	return list
}
