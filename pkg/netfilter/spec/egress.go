package spec

import (
	"net/netip"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
)

// EgressNeeds is what the judgement of what one attachment sends needs.
type EgressNeeds struct {
	HostEnd  string // of the attachment's veth
	OnBridge bool   // it is a port of a bridge
	MAC      [6]byte
	Addrs    []netip.Prefix // with their networks
	Lists    reach.Lists

	// Results is the directory of libcni's results, which say whether an attachment that has one of the addresses is gone.
	Results string
}

// LinkLocal returns the link-local address that is derived from a MAC address.
func LinkLocal(mac [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// Near returns the destinations that can be reached without the host routing anything: the networks of the attachment that are open as a whole,
// and with these what goes to all of the link, if that is open.
func (n EgressNeeds) Near() (near []netip.Prefix) {
	all4, all6 := false, false
	for _, p := range n.Addrs {
		if !p.IsSingleIP() && n.Lists.Opens(p.Masked()) {
			near = append(near, p.Masked())
			all4, all6 = all4 || p.Addr().Is4(), all6 || p.Addr().Is6()
		}
	}
	for _, p := range []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("ff00::/8")} {
		if (all4 && p.Addr().Is4() || all6 && p.Addr().Is6()) && n.Lists.Opens(p) {
			near = append(near, p)
		}
	}
	return near
}
