package nft

import (
	"context"
	"net/netip"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddSpoofCheck has packets dropped that the host's end of the attachment's veth
// gets from any other MAC address.
func (c *Conn) AddSpoofCheck(ctx context.Context, key plugin.Key, hostEnd string, mac [6]byte) error {
	return c.bridges().hold(ctx, ownerOf(key, useSpoofCheck), macClaims(hostEnd, mac), nil)
}

// DelSpoofCheck removes that.
func (c *Conn) DelSpoofCheck(ctx context.Context, key plugin.Key) error {
	_, _, err := c.bridges().release(ctx, ownerOf(key, useSpoofCheck))
	return err
}

// CheckSpoofCheck compares what is there with what AddSpoofCheck makes.
func (c *Conn) CheckSpoofCheck(key plugin.Key, hostEnd string, mac [6]byte) error {
	return c.bridges().check(ownerOf(key, useSpoofCheck), macClaims(hostEnd, mac))
}

// GCSpoofCheck removes what attachments of the network have that are not valid.
func (c *Conn) GCSpoofCheck(ctx context.Context, network string, valid []plugin.Key) error {
	return c.bridges().collect(ctx, network, useSpoofCheck, valid)
}

// SpoofCheckAvailable tries whether the kernel takes the table, without leaving
// anything in it.
func (c *Conn) SpoofCheckAvailable() error { return c.bridges().available() }

// SpoofCheckTable is the table that AddSpoofCheck puts something in.
func SpoofCheckTable() nftables.Table {
	return nftables.Table{Family: nftables.TableFamilyBridge, Name: "cnibox"}
}

// macClaims keeps the MAC address in the place of an IPv6 address.
func macClaims(hostEnd string, mac [6]byte) []claim {
	var addr [16]byte
	copy(addr[:], mac[:])
	return []claim{{record: record{kind: kindMAC, link: hostEnd, addr: netip.AddrFrom16(addr)}}}
}

// bridges returns the table bridge cnibox. That of a host with two containers that
// are checked:
//
//	table bridge cnibox {
//		set allowed_v1  { ifname . ether_addr: veth1 . 02:…:01, veth2 . 02:…:02 }
//		set checked_v1  { ifname: veth1, veth2 }
//		chain prerouting_v1 {
//			type filter hook prerouting priority dstnat; policy accept;
//			iifname . ether saddr @allowed_v1 accept
//			iifname @checked_v1 drop
//		}
//	}
//
// No chain is bound to a link: on recent kernels it would outlive that, and grab the
// next one of its name.
func (c *Conn) bridges() *table {
	t := &table{conn: c, ruleset: ruleset{
		table:   SpoofCheckTable(),
		refusal: "nftables table bridge cnibox can't be made",
		need:    "the kernel needs nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE), or must be able to load its modules (nf_tables, nft_meta_bridge)",
		lost:    "what all attachments of this host had in it",
	}}
	t.owners = newOwners(&t.table)
	allowed := newSet(&t.table, "allowed", concat(nftables.TypeIFName, nftables.TypeEtherAddr))
	checked := newSet(&t.table, "checked", nftables.TypeIFName)
	t.sets = []*nftables.Set{allowed, checked}
	t.elements = func(r record) []element {
		bytes := r.addr.As16()
		mac := etherKey([6]byte(bytes[:6]))
		return []element{{set: allowed, key: append(linkKey(r.link), mac...), what: r.link}, {set: checked, key: linkKey(r.link), what: r.link}}
	}
	const priorityNAT = -300 // dstnat in family bridge (linux/netfilter_bridge.h)
	t.chains = func() []chain {
		return []chain{{
			name: "prerouting" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: priorityNAT,
			rules: []rule{
				words(in(allowed, inLink(), srcEther()), accept()),
				words(in(checked, inLink()), drop()),
			},
		}}
	}
	return t
}
