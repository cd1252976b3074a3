package nft

import (
	"context"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ForwardMark is the bit of the mark of packets that may be forwarded, between
// priorities -10 and 10 of hook forward. It is none of those that others use: 0x2000
// for masquerading (portmap, netavark), 0x4000 and 0x8000 (kube-proxy), 0x0f00
// (Cilium), 0xff0000 (Tailscale), 0xffff0000 (Calico), or the numbers that proxies
// set (Istio's 0x539, WireGuard's 0xca6c).
const ForwardMark = 0x1000

// foreignMark is the bit of the priority of packets that came with ForwardMark, in
// between. As a class of tc it would be 4000:, which neither people nor tc give.
const foreignMark = 0x40000000

// AddForward marks packets from and to the addresses, and protects the bridge. To
// accept what is marked, and to isolate the port, is for others.
func (c *Conn) AddForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	claims, err := forwardClaims(f)
	if err != nil {
		return err
	}
	return c.forwarding().hold(ctx, ownerOf(key, useForward), claims, nil)
}

// DelForward takes that back.
func (c *Conn) DelForward(ctx context.Context, key plugin.Key) error {
	_, _, err := c.forwarding().release(ctx, ownerOf(key, useForward))
	return err
}

// CheckForward compares what is there with what AddForward makes.
func (c *Conn) CheckForward(key plugin.Key, f netfilter.Forward) error {
	claims, err := forwardClaims(f)
	if err != nil {
		return err
	}
	return c.forwarding().check(ownerOf(key, useForward), claims)
}

// GCForward removes what attachments of the network have that are not valid.
func (c *Conn) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	return c.forwarding().collect(ctx, network, useForward, valid)
}

// ForwardAvailable tries whether the kernel takes the table for forwarding, without
// leaving anything in it.
func (c *Conn) ForwardAvailable() error { return c.forwarding().available() }

func forwardClaims(f netfilter.Forward) ([]claim, error) {
	var claims []claim
	seen := map[netip.Addr]bool{}
	for _, a := range f.Addrs {
		if !seen[a] {
			seen[a] = true
			claims = append(claims, claim{record: record{kind: kindForwarded, link: noLink, addr: a}})
		}
	}
	if f.Ingress == netfilter.Open {
		return claims, nil
	}
	if f.Bridge == "" || len(f.Bridge) >= unix.IFNAMSIZ {
		return nil, plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
			"ingressPolicy: %q is no bridge", f.Bridge)
	}
	claims = append(claims, claim{record: record{kind: kindProtected, link: f.Bridge, addr: netip.IPv6Unspecified()}})
	if f.Ingress == netfilter.Isolated {
		claims = append(claims, claim{record: record{kind: kindIsolated, link: f.Bridge, addr: netip.IPv6Unspecified()}})
	}
	return claims, nil
}

// forwarding returns the table inet cnibox-forward:
//
//	chain passes_v1 {
//		ip saddr @pods4_v1 meta mark set meta mark | 0x00001000
//		ip daddr @pods4_v1 ct state established,related meta mark set meta mark | 0x00001000
//		ip daddr @pods4_v1 ct status dnat meta mark set meta mark | 0x00001000
//		… the same for IPv6
//	}
//	chain forward_v1 {
//		type filter hook forward priority filter - 10; policy accept;
//		meta mark & 0x00001000 == 0x00001000 meta priority set meta priority | 4000:0 meta mark set meta mark & 0xffffefff
//		iifname . oifname @isolated_v1 drop
//		iifname . oifname @same_v1 goto passes_v1
//		iifname @protected_v1 oifname @protected_v1 drop
//		goto passes_v1
//	}
//	chain forwarded_v1 {
//		type filter hook forward priority filter + 10; policy accept;
//		meta mark set meta mark & 0xffffefff
//		meta priority & 4000:0 == 4000:0 meta priority set meta priority & bfff:ffff meta mark set meta mark | 0x00001000
//	}
//
// A drop is final, and so bridges are kept apart here. An accept is not: a later
// chain at the hook still sees the packet, and it is there, mostly in chain FORWARD
// of iptables, that a host drops what it does not know. So a packet that may pass
// gets a bit of the mark, which one rule of iptables accepts. It has it between the
// two chains only. One with the bit set by someone else must not pass for that: there,
// it has a bit of its priority set instead, which no program that filters looks at.
//
// New connections to a container pass only if they are to a published port: their
// destination was changed (ct status dnat).
//
// nf_tables can't compare two links with each other; a pair of a bridge with itself
// in a set stands for "the same one".
func (c *Conn) forwarding() *table {
	t := &table{conn: c, ruleset: ruleset{
		table:   nftables.Table{Family: nftables.TableFamilyINet, Name: "cnibox-forward"},
		refusal: "nftables table inet cnibox-forward can't be made",
		need: "the kernel needs nf_tables for family inet with connection tracking (CONFIG_NF_TABLES_INET, CONFIG_NFT_CT), " +
			"or must be able to load its modules (nf_tables, nft_ct)",
		lost: "what all attachments of this host had in it",
	}}
	t.owners = newOwners(&t.table)
	pair := concat(nftables.TypeIFName, nftables.TypeIFName)
	pods := map[*family]*nftables.Set{
		&ipv4: newSet(&t.table, "pods4", nftables.TypeIPAddr),
		&ipv6: newSet(&t.table, "pods6", nftables.TypeIP6Addr),
	}
	protected := newSet(&t.table, "protected", nftables.TypeIFName)
	same := newSet(&t.table, "same", pair)
	isolated := newSet(&t.table, "isolated", pair)
	t.sets = []*nftables.Set{pods[&ipv4], pods[&ipv6], protected, same, isolated}

	t.elements = func(r record) []element {
		both := append(linkKey(r.link), linkKey(r.link)...)
		switch r.kind {
		case kindForwarded:
			return []element{{set: pods[familyOf(r.addr)], key: r.addr.AsSlice(), what: r.String()}}
		case kindProtected:
			return []element{{set: protected, key: linkKey(r.link), what: r.link, sharing: common}, {set: same, key: both, what: r.link, sharing: common}}
		}
		return []element{{set: isolated, key: both, what: r.link, sharing: common}}
	}

	const passes, forward, forwarded = "passes" + version, "forward" + version, "forwarded" + version
	var pass []rule
	for _, f := range families() {
		from, to := words(f.is(), in(pods[f], f.src())), words(f.is(), in(pods[f], f.dst()))
		pass = append(pass,
			words(from, setMark(ForwardMark)),
			words(to, isAnswer(), setMark(ForwardMark)),
			words(to, wasRedirected(), setMark(ForwardMark)))
	}
	const before, behind = -10, 10 // iptables' filter table
	t.chains = []chain{
		{name: passes, rules: pass, jumps: 2},
		{name: forward, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: before, rules: []rule{
			words(isSet(expr.MetaKeyMARK, ForwardMark), change(expr.MetaKeyPRIORITY, foreignMark, foreignMark), change(expr.MetaKeyMARK, ForwardMark, 0)),
			words(in(isolated, inLink(), outLink()), drop()),
			words(in(same, inLink(), outLink()), goOnIn(passes)),
			words(in(protected, inLink()), in(protected, outLink()), drop()),
			goOnIn(passes),
		}},
		{name: forwarded, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: behind, rules: []rule{
			change(expr.MetaKeyMARK, ForwardMark, 0),
			words(isSet(expr.MetaKeyPRIORITY, foreignMark), change(expr.MetaKeyPRIORITY, foreignMark, 0), setMark(ForwardMark)),
		}},
	}
	return t
}
