package nft

import (
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// subnet is the part of the ruleset that masquerades the addresses of one
// network. Addresses without a network around them share one for each family.
type subnet struct {
	id      string
	set     nftables.Set // the addresses
	gone    nftables.Set // those that are none any more
	family  *family
	network netip.Prefix // the zero Prefix: none, all is elsewhere to the address
}

// subnetOf returns the subnet that an address with its prefix length is in.
// Names are what nft takes for an identifier, which has no colons.
func subnetOf(p netip.Prefix) subnet {
	s := subnet{family: familyOf(p.Addr())}
	if p.IsSingleIP() {
		s.id = "single" + s.family.digit
	} else {
		s.network = p.Masked()
		s.id = strings.ReplaceAll(s.network.String(), ":", "-")
	}
	s.set = nftables.Set{Table: table, Name: partName(partMasq, s.id), Key: []nftables.Type{s.family.addr}, Expiring: true}
	s.gone = nftables.Set{Table: table, Name: partName(partGone, s.id), Key: s.set.Key, Expiring: true}
	return s
}

func (s *subnet) part() part {
	return part{id: s.id, sets: []nftables.Set{s.set, s.gone}, entries: []entry{{chain: chainPostrouting, rule: s.rule()}}}
}

func (s *subnet) rule() nftables.Rule {
	match := nftables.MakeRule(is(s.family), nftables.InBut(&s.set, &s.gone, s.family.src()))
	if s.network.IsValid() {
		match = append(match, nftables.CompareNet(s.family.dst(), unix.NFT_CMP_NEQ, s.network)...)
	}
	return nftables.MakeRule(match, nftables.CompareNet(s.family.dst(), unix.NFT_CMP_NEQ, s.family.multicast()), nftables.Masquerade())
}
