package iptables

import (
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// ownersFile says which interface has which rules, which the rules don't. It is written before the rules are made and after they are
// removed. It is in /run because it means nothing after a reboot, as the rules.
//
//	{"network":"net","containerID":"0123456789ab","ifname":"eth0","kind":"ports",
//	 "ipv4":["-A CNI-DN-e8f6f419596f7f47b3468 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.88.0.2:80"]}
const ownersFile = "iptables.owners"

// readOwned returns the rules of all owners.
func readOwned() (list []rule, err error) {
	records, err := state.ReadRecords(state.RunFile(ownersFile))
	for _, record := range records {
		var kind string
		record.String("kind", &kind)
		o := owner{Kind(kind), plugin.KeyIn(record)}
		for _, f := range families() {
			var texts []string
			record.Strings(f.name, &texts)
			for _, text := range texts { // as rule.add printed it
				const fields = 3
				if w := strings.SplitN(text, " ", fields); len(w) == fields {
					list = append(list, rule{family: f, chain: w[1], spec: w[2], first: w[0] == "-I", owner: o})
				}
			}
		}
	}
	return list, err
}

// writeOwned makes one record of the rules of an owner that follow each other.
func writeOwned(list []rule) error {
	var records []*conf.Object
	for end := 0; len(list) > 0; list = list[end:] {
		o, texts := list[0].owner, map[*family][]string{}
		for end = 0; end < len(list) && list[end].owner == o; end++ {
			texts[list[end].family] = append(texts[list[end].family], list[end].add())
		}
		record := conf.New()
		o.key.SetIn(record)
		record.Set("kind", string(o.kind))
		for _, f := range families() {
			record.Set(f.name, texts[f])
		}
		records = append(records, record)
	}
	const mode = 0o644
	return state.WriteRecords(state.RunFile(ownersFile), records, mode)
}
