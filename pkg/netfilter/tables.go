package netfilter

import (
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
)

// OwnTables are those of nf_tables that are ours alone.
func OwnTables() []nftables.Table {
	return []nftables.Table{nft.Publishing.Table, nft.Forwarding.Table, nft.SpoofChecking.Table, nft.Judging.Table, nft.GuardingPorts.Table}
}

// IPTablesTables are those of iptables-nft in which attachments may have rules, and with the guard of 127.0.0.0/8.
func IPTablesTables() []nftables.Table {
	return slices.Concat(iptables.Masquerading.Tables(), iptables.Forwarding.Tables(), iptables.GuardTables())
}

// ReferenceTables are those in which the reference plugins have rules of nftables.
func ReferenceTables() []nftables.Table {
	return slices.Concat(reference.MasqueradeRules{}.Tables(), reference.PortRules{}.Tables(), reference.SpoofChains{}.Tables())
}

// NameOf returns a table's name as nft's commands take it, such as "inet cnibox".
func NameOf(t nftables.Table) string {
	family := ""
	switch t.Family {
	case nftables.TableFamilyINet:
		family = "inet"
	case nftables.TableFamilyIPv4:
		family = "ip"
	case nftables.TableFamilyIPv6:
		family = "ip6"
	case nftables.TableFamilyBridge:
		family = "bridge"
	}
	return family + " " + t.Name
}
