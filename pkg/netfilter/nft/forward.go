package nft

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

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

// Forward marks packets from and to addresses, protects a bridge, and isolates the attachment's port of it, which goes with the port. To
// accept what is marked is for others.
func (c *Conn) Forward(f spec.Forward) Use {
	u := Use{table: c.forwarding(), name: useForward, records: forwardRecords(f),
		kinds: []kind{kindForwarded, kindProtected, kindIsolated, kindPublished}}
	if f.Ingress != spec.Isolated || f.HostEnd == "" {
		return u
	}
	u.before = func(context.Context) error {
		port, err := netlink.LinkByName(f.HostEnd)
		if err == nil {
			err = netlink.LinkSetIsolated(port, true)
		}
		if err != nil {
			return fmt.Errorf("isolate the bridge's port %s: %w", f.HostEnd, err)
		}
		return nil
	}
	u.also = func(owner) error {
		isolated, err := link.PortOption(f.HostEnd, nl.IFLA_BRPORT_ISOLATED)
		if err != nil || isolated {
			return err
		}
		return plugin.Errorf(fmt.Sprintf("something changed it after ADD: restart the container, or `bridge link set dev %s isolated on`", f.HostEnd),
			"the bridge's port %s is not isolated", f.HostEnd)
	}
	return u
}

const useForward = "forward"

func forwardRecords(f spec.Forward) (records []record) {
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

// forwarding returns the table inet cnibox-forward, which docs/netfilter.md shows.
//
// A drop is final, and so bridges are kept apart here. An accept is not: a later chain at the hook still sees the packet, and it is
// there, mostly in chain FORWARD of iptables, that a host drops what it does not know. So a packet that may pass gets a bit of the
// mark, which one rule of iptables accepts. It has it between the two chains only. One with the bit set by someone else must not pass
// for that: there, it has a bit of its priority set instead, which no program that filters looks at.
//
// New connections to a container pass only if they are to a published port: their destination was changed (ct status dnat).
// With kindPublished they also do between bridges that are kept apart.
// nf_tables can't compare two links with each other; a pair of a bridge with itself in a set stands for "the same one".
func (c *Conn) forwarding() *table {
	t := c.table(ForwardTable)
	t.refusal = "nftables table inet cnibox-forward can't be made"
	t.need = "the kernel needs nf_tables for family inet with connection tracking (CONFIG_NF_TABLES_INET, CONFIG_NFT_CT), " +
		"or must be able to load its modules (nf_tables, nft_ct)"
	pods := map[*family]*nftables.Set{&ipv4: t.newSet("pods4", ipv4.src()), &ipv6: t.newSet("pods6", ipv6.src())}
	protected := t.newSet("protected", inLink())
	same := t.newSet("same", inLink(), outLink())
	isolated := t.newSet("isolated", inLink(), outLink())
	published := t.newSet("published", inLink())

	t.elements = func(r record) []element {
		switch name := linkKey(r.link); r.kind {
		case kindForwarded:
			return []element{newElement(pods[familyOf(r.addr)], r.addr.AsSlice())}
		case kindProtected:
			return []element{newElement(protected, name).shared(common), newElement(same, name, name).shared(common)}
		case kindPublished:
			return []element{newElement(published, name).shared(common)}
		default:
			return []element{newElement(isolated, name, name).shared(common)}
		}
	}

	t.chains = func(records []record) []chain {
		const passes, forward, forwarded = "passes" + version, "forward" + version, "forwarded" + version
		var pass []rule
		for _, f := range families() {
			from, to := words(f.is(), in(pods[f], f.src())), words(f.is(), in(pods[f], f.dst()))
			pass = append(pass,
				words(from, setMark(ForwardMark)),
				words(to, isAnswer(), setMark(ForwardMark)),
				words(to, wasRedirected(), setMark(ForwardMark)))
		}
		// Only where somebody needs them, so that a table that an earlier version made is complete for all others.
		var open []rule
		if slices.ContainsFunc(records, func(r record) bool { return r.kind == kindPublished }) {
			open = []rule{
				words(wasRedirected(), isDirection(original), in(published, outLink()), goOnIn(passes)),
				words(wasRedirected(), isDirection(answer), in(published, inLink()), goOnIn(passes)),
			}
		}
		clearMark := change(expr.MetaKeyMARK, ForwardMark, 0)
		const before, behind = -10, 10 // iptables' filter table
		return []chain{
			{name: passes, rules: pass, jumps: 2 + len(open)},
			{name: forward, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: before, rules: slices.Concat([]rule{
				words(isSet(expr.MetaKeyMARK, ForwardMark), change(expr.MetaKeyPRIORITY, foreignMark, foreignMark), clearMark),
			}, open, []rule{
				words(in(isolated, inLink(), outLink()), drop()),
				words(in(same, inLink(), outLink()), goOnIn(passes)),
				words(in(protected, inLink()), in(protected, outLink()), drop()),
				goOnIn(passes),
			})},
			{name: forwarded, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: behind, rules: []rule{
				clearMark,
				words(isSet(expr.MetaKeyPRIORITY, foreignMark), change(expr.MetaKeyPRIORITY, foreignMark, 0), setMark(ForwardMark)),
			}},
		}
	}
	return t
}
