package nft

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ForwardMark is the bit of the mark of packets that may be forwarded, between priorities -10 and 10 of hook forward. It is none of
// those that others use: 0x2000 for masquerading (portmap, netavark), 0x4000 and 0x8000 (kube-proxy), 0x0f00 (Cilium), 0xff0000
// (Tailscale), 0xffff0000 (Calico), or the numbers that proxies set (Istio's 0x539, WireGuard's 0xca6c).
const ForwardMark = 0x1000

// foreignMark is the bit of the priority of packets that came with ForwardMark, in between. As a class of tc it would be 4000:, which
// neither people nor tc give.
const foreignMark = 0x40000000

// ToForward marks packets from and to addresses, protects a bridge, and isolates the attachment's port of it, which goes with the port.
// To accept what is marked is for others.
func ToForward(f spec.ForwardNeeds) Wants {
	w := Wants{Purpose: Forwarding, records: forwardRecords(f)}
	if f.Ingress == spec.Isolated {
		w.port = f.HostEnd
	}
	return w
}

// isolate keeps a bridge's port from the other isolated ones.
func isolate(name string) error {
	port, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetIsolated(port, true)
	}
	if err != nil {
		return fmt.Errorf("isolate the bridge's port %s: %w", name, err)
	}
	return nil
}

func checkIsolated(name string) error {
	isolated, err := link.PortOption(name, nl.IFLA_BRPORT_ISOLATED)
	if err != nil || isolated {
		return err
	}
	return plugin.Errorf("something changed it after ADD: "+plugin.RepairRemedy,
		"the bridge's port %s is not isolated", name)
}

func forwardRecords(f spec.ForwardNeeds) (records []record) {
	for _, a := range f.Addrs {
		records = append(records, record{kind: kindForwarded, link: noLink, addr: a})
	}
	bridge := record{link: f.Bridge, addr: netip.IPv6Unspecified()}
	if f.Ingress != spec.Open {
		bridge.kind = kindProtected
		records = append(records, bridge)
	}
	if f.Ingress == spec.Isolated {
		bridge.kind = kindIsolated
		records = append(records, bridge)
	}
	if f.Ingress != spec.Open && f.Published {
		bridge.kind = kindPublished
		records = append(records, bridge)
	}
	return records
}

// forwardLayout is that of table inet cnibox-forward, which docs/operate/netfilter.md shows.
//
// A drop is final, and so bridges are kept apart here. An accept is not: a later chain at the hook still sees the packet, and it is
// there, mostly in chain FORWARD of iptables, that a host drops what it does not know. So a packet that may pass gets a bit of the
// mark, which one rule of iptables accepts, from the first of the two chains to the second. A packet that comes with that bit set by
// someone else has a bit of its priority set in between instead, which no program that filters looks at.
//
// New connections to a container pass only if they are to a published port: their destination was changed (ct status dnat).
// With kindPublished they also do between bridges that are kept apart.
// nf_tables can't compare two links with each other; a pair of a bridge with itself in a set stands for "the same one".
type forwardLayout struct {
	pods4, pods6, protected, same, isolated, published *nftables.Set
}

func newForwardLayout(t *table) forwardLayout {
	return forwardLayout{
		pods4: t.newSet("pods4", ipv4.src()), pods6: t.newSet("pods6", ipv6.src()),
		protected: t.newSet("protected", inLink()), same: t.newSet("same", inLink(), outLink()),
		isolated: t.newSet("isolated", inLink(), outLink()), published: t.newSet("published", inLink()),
	}
}

func (l forwardLayout) missing() *plugin.MissingFeature {
	return &plugin.MissingFeature{Name: "nf_tables for table inet cnibox-forward", Module: "nf_tables, nft_ct", Option: "CONFIG_NF_TABLES_INET and CONFIG_NFT_CT"}
}

func (l forwardLayout) pods(f *family) *nftables.Set {
	if f == &ipv4 {
		return l.pods4
	}
	return l.pods6
}

func (l forwardLayout) elements(r record) []element {
	name := linkKey(r.link)
	switch r.kind {
	case kindForwarded:
		return []element{newElement(l.pods(familyOf(r.addr)), r.addr.AsSlice())}
	case kindProtected:
		return []element{commonElement(l.protected, name), commonElement(l.same, name, name)}
	case kindPublished:
		return []element{commonElement(l.published, name)}
	}
	return []element{commonElement(l.isolated, name, name)}
}

func (l forwardLayout) chains([]record) []chain {
	const passes, forward, forwarded = "passes" + version, "forward" + version, "forwarded" + version
	var pass []rule
	for _, f := range families() {
		src, dst := sequence(f.only(), inSet(l.pods(f), f.src())), sequence(f.only(), inSet(l.pods(f), f.dst()))
		pass = append(pass,
			sequence(src, setMark(ForwardMark)),
			sequence(dst, isAnswer(), setMark(ForwardMark)),
			sequence(dst, wasRedirected(), setMark(ForwardMark)))
	}
	clearMark := change(expr.MetaKeyMARK, ForwardMark, 0)
	const before, behind = -10, 10 // iptables' filter table
	return []chain{
		{name: passes, rules: pass, jumps: 4},
		{name: forward, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: before, rules: []rule{
			sequence(isSet(expr.MetaKeyMARK, ForwardMark), change(expr.MetaKeyPRIORITY, foreignMark, foreignMark), clearMark),
			sequence(wasRedirected(), isDirection(original), inSet(l.published, outLink()), gotoChain(passes)),
			sequence(wasRedirected(), isDirection(answer), inSet(l.published, inLink()), gotoChain(passes)),
			sequence(inSet(l.isolated, inLink(), outLink()), drop()),
			sequence(inSet(l.same, inLink(), outLink()), gotoChain(passes)),
			sequence(inSet(l.protected, inLink()), inSet(l.protected, outLink()), drop()),
			gotoChain(passes),
		}},
		{name: forwarded, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: behind, rules: []rule{
			clearMark,
			sequence(isSet(expr.MetaKeyPRIORITY, foreignMark), change(expr.MetaKeyPRIORITY, foreignMark, 0), setMark(ForwardMark)),
		}},
	}
}
