package spec

import (
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
)

// EgressNeeds is what the judgement of what one attachment sends needs.
type EgressNeeds struct {
	HostEnd  string // of the attachment's veth
	OnBridge bool   // it is a port of a bridge
	MAC      [6]byte
	Addrs    []netip.Prefix // with their networks
	Lists    reach.Lists

	// Resolvers are where the attachment's questions for names go, one of a family at most: the lists have names.
	Resolvers []netip.AddrPort

	// Results is the directory of libcni's results, which say whether an attachment that has one of the addresses is gone.
	Results string
}

// LinkLocal returns the link-local address that is derived from a MAC address.
func LinkLocal(mac [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// Near returns the lists for what reaches its destination without the host routing anything: the attachment's own networks, and all that are on the
// link. Names open nothing there: whom a name leads to is known of what is routed. open reports whether there is anything to reach.
func (n EgressNeeds) Near() (near reach.Lists, open bool) {
	own := reach.Lists{Closed: true}
	for _, p := range n.Addrs {
		if !p.IsSingleIP() {
			own.Allow = append(own.Allow, reach.Entry{Prefix: p.Masked()})
		}
	}
	for _, all := range []string{"224.0.0.0/4", "255.255.255.255/32", "ff00::/8"} {
		own.Allow = append(own.Allow, reach.Entry{Prefix: netip.MustParsePrefix(all)})
	}
	near = n.Lists.And(own)
	hasName := func(e reach.Entry) bool { return e.Name != "" }
	near.Allow, near.Deny = slices.DeleteFunc(near.Allow, hasName), slices.DeleteFunc(near.Deny, hasName)
	return near, len(near.Allow) > 0
}
