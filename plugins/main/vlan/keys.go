package vlan

import (
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	probe := &netlink.Vlan{VlanId: 5, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	return plugin.Facts{MakesInterface: true, MTUWithinMaster: true, Kernel: []plugin.Feature{plugin.LinksLike(probe)}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		attach.MasterKeys(true, "", "The link that has the VLAN's packets, such as `eth0`. It must be up."),
		keys.Table{
			{Name: "vlanId", Type: keys.Int, Range: &keys.Range{Max: 4094}, Default: "`0`",
				Doc: "The VLAN."},
			attach.MTUKey("the master's", "MTU of the interface, at most the master's."),
		},
		attach.AddressKeys("Look for other users of an IPv6 address before it is used: 1 to 2 seconds. Always done unless `ipam` hands out each address once, as host-local does.",
			"Let the container take IPv6 addresses and routes from the routers of the segment, besides those of IPAM.", keys.Ours),
		keys.Table{
			attach.DNSKey("none", "DNS settings for the result. Those of the IPAM plugin are left out."),
			attach.IPAMKey(true, "`type` names the IPAM plugin; the other keys are for it."),
		},
	)
}
