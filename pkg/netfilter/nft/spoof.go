package nft

import (
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// ToCheckSpoofing has packets dropped that the host's end of an attachment's veth gets from any other MAC address.
func ToCheckSpoofing(hostEnd string, mac [6]byte) Wants {
	return Wants{Purpose: SpoofChecking, records: []record{{kind: kindMAC, link: hostEnd, mac: mac}}}
}

// bridgeLayout is that of table bridge cnibox, which docs/operate/netfilter.md shows. No chain is bound to a link: on recent kernels it would
// outlive that, and grab the next one of its name.
type bridgeLayout struct{ allowed, checked *nftables.Set }

func newBridgeLayout(t *table) bridgeLayout {
	return bridgeLayout{allowed: t.newSet("allowed", inLink(), srcEther()), checked: t.newSet("checked", inLink())}
}

func (l bridgeLayout) missing() *plugin.MissingFeature {
	return &plugin.MissingFeature{Name: "nf_tables for table bridge cnibox", Module: "nf_tables, nft_meta_bridge", Option: "CONFIG_NF_TABLES_BRIDGE"}
}

func (l bridgeLayout) elements(r record) []element {
	return []element{newElement(l.allowed, linkKey(r.link), pad(r.mac[:]...)), newElement(l.checked, linkKey(r.link))}
}

func (l bridgeLayout) chains([]record) []chain {
	const priorityNAT = -300 // dstnat in family bridge (linux/netfilter_bridge.h)
	return []chain{{
		name: "prerouting" + version, kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: priorityNAT,
		rules: []rule{
			sequence(inSet(l.allowed, inLink(), srcEther()), accept()),
			sequence(inSet(l.checked, inLink()), drop()),
		},
	}}
}
