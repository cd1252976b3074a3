package nft

import (
	"net/netip"

	"github.com/google/nftables"
)

// SpoofCheck has packets dropped that the host's end of an attachment's veth gets from any other MAC address.
func (c *Conn) SpoofCheck(hostEnd string, mac [6]byte) Use {
	var addr [16]byte // which keeps the MAC address in the place of an IPv6 address
	copy(addr[:], mac[:])
	records := []record{{kind: kindMAC, link: hostEnd, addr: netip.AddrFrom16(addr)}}
	return Use{table: c.bridges(), name: "spoof check", kinds: []kind{kindMAC}, records: records}
}

// bridges returns the table bridge cnibox, which docs/netfilter.md shows. No chain is bound to a link: on recent kernels it would outlive
// that, and grab the next one of its name.
func (c *Conn) bridges() *table {
	t := c.table(BridgeTable)
	t.refusal = "nftables table bridge cnibox can't be made"
	t.need = "the kernel needs nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE), or must be able to load its modules (nf_tables, nft_meta_bridge)"
	allowed := t.newSet("allowed", inLink(), srcEther())
	checked := t.newSet("checked", inLink())
	t.elements = func(r record) []element {
		mac := r.addr.As16()
		return []element{newElement(allowed, linkKey(r.link), pad(mac[:6]...)), newElement(checked, linkKey(r.link))}
	}
	const priorityNAT = -300 // dstnat in family bridge (linux/netfilter_bridge.h)
	t.chains = func([]record) []chain {
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
