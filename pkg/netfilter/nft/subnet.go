package nft

import (
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
	set     set
	family  *family
	network netip.Prefix // the zero Prefix: none, all is elsewhere to the address
}

// subnetOf returns the subnet that an address with its prefix length is in.
// Names are what nft takes for an identifier, which has no colons.
func subnetOf(p netip.Prefix) subnet {
	s := subnet{family: familyOf(p.Addr())}
	s.set.key = []dataType{s.family.addr}
	switch {
	case !p.IsSingleIP():
		s.network = p.Masked()
		s.set.name = subnetPrefix + strings.ReplaceAll(s.network.String(), ":", "-")
	case p.Addr().Is4():
		s.set.name = subnetPrefix + "single4"
	default:
		s.set.name = subnetPrefix + "single6"
	}
	return s
}

// appendTo adds the creation of the set and the rule to a transaction.
func (s *subnet) appendTo(tx *transaction) {
	s.set.appendTo(tx, makeSubnet)
	appendRule(tx, makeSubnet, chainPostrouting, s.rule())
}

func (s *subnet) rule() []expr {
	match := rule(is(s.family), concat(s.family.src()), []expr{lookup(&s.set)})
	if s.network.IsValid() {
		match = append(match, compareNet(s.family.dst(), unix.NFT_CMP_NEQ, s.network)...)
	}
	return rule(match, compareNet(s.family.dst(), unix.NFT_CMP_NEQ, s.family.multicast()), []expr{masquerade()})
}
