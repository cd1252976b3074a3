package iptables

import (
	"strings"

	"github.com/google/nftables"
)

// GuardTables are those of iptables-nft with the rule that keeps containers from 127.0.0.1 of the host.
func GuardTables() []nftables.Table { return []nftables.Table{nftTable(&ipv4, guardTable)} }

// Legacy is a table of iptables-legacy that is there.
type Legacy struct {
	Name string
	IPv6 bool
}

// LegacyTables lists those in which attachments may have rules.
func LegacyTables() (list []Legacy) {
	for _, f := range families() {
		for _, name := range []string{natTable, filterTable, guardTable} {
			if hasLegacy(f, name) {
				list = append(list, Legacy{name, f == &ipv6})
			}
		}
	}
	return list
}

// String returns the table in words.
func (l Legacy) String() string {
	if l.IPv6 {
		return l.Name + " of ip6tables-legacy"
	}
	return l.Name + " of iptables-legacy"
}

// Owned returns how many entries the kernel has for the rules that attachments hold for themselves in the table, if it has them all. A chain
// counts twice: for its name, and for its end.
func (l Legacy) Owned() (entries int, err error) {
	owned, err := readOwned()
	chains := map[string]bool{}
	for _, r := range owned {
		if r.owner.kind.table() != l.Name || (r.family == &ipv6) != l.IPv6 {
			continue
		}
		entries++
		if strings.HasPrefix(r.chain, "CNI-") && r.owner.kind.isChain(r.chain) && !chains[r.chain] {
			chains[r.chain] = true
			entries += 2
		}
	}
	return entries, err
}
