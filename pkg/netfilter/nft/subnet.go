package nft

import (
	"github.com/cnibox/cnibox/pkg/nftables"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// subnetPrefix begins the names of all subnets' sets.
const subnetPrefix = "masq_v1_"

// subnet is the set of masqueraded addresses of one network, and the rule that
// masquerades them. Addresses without a network around them share one for each
// family.
type subnet struct {
	set     nftables.Set
	family  *family
	network netip.Prefix // the zero Prefix: none, all is elsewhere to the address
}

// subnetOf returns the subnet that an address with its prefix length is in.
// Names are what nft takes for an identifier, which has no colons.
func subnetOf(p netip.Prefix) subnet {
	s := subnet{family: familyOf(p.Addr()), set: nftables.Set{Table: table}}
	s.set.Key = []nftables.Type{s.family.addr}
	switch {
	case !p.IsSingleIP():
		s.network = p.Masked()
		s.set.Name = subnetPrefix + strings.ReplaceAll(s.network.String(), ":", "-")
	case p.Addr().Is4():
		s.set.Name = subnetPrefix + "single4"
	default:
		s.set.Name = subnetPrefix + "single6"
	}
	return s
}

// appendTo adds the creation of the set and the rule to a transaction.
func (s *subnet) appendTo(tx *nftables.Transaction) {
	tx.CreateSet(makeSubnet, &s.set)
	tx.AppendRule(makeSubnet, table, chainPostrouting, s.rule())
}

func (s *subnet) rule() nftables.Rule {
	match := nftables.MakeRule(is(s.family), nftables.In(&s.set, s.family.src()))
	if s.network.IsValid() {
		match = append(match, nftables.CompareNet(s.family.dst(), unix.NFT_CMP_NEQ, s.network)...)
	}
	return nftables.MakeRule(match, nftables.CompareNet(s.family.dst(), unix.NFT_CMP_NEQ, s.family.multicast()), nftables.Masquerade())
}
