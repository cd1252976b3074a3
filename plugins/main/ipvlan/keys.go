package ipvlan

import (
	"slices"
	"strings"

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
func (Plugin) Facts(o *conf.Object) plugin.Facts {
	mode := ""
	o.String("mode", &mode)
	return plugin.Facts{SharesMAC: true, AnyGateway: strings.HasPrefix(mode, "l3"), Kernel: []plugin.Feature{plugin.LinksLike(&netlink.IPVlan{})}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		attach.MasterKeys(false, "see [how it works](#how-it-works)", "The link to share the MAC address of, such as `eth0`."),
		keys.Table{
			{Name: "mode", Type: keys.String, Words: []string{"l2", "l3", "l3s"}, Default: "`l2`",
				Doc: "`l2`: the container does its own neighbour discovery. `l3`: the host routes for it, and it has neither broadcast nor multicast. `l3s`: as `l3`, and its packets pass the host's netfilter. All ipvlans of a master have one mode: the last one made sets it."},
			attach.MTUKey("the master's", "MTU of the interface. It is not compared with the master's."),
		},
		attach.AddressKeys("Look for other users of an IPv6 address before it is used: 1 to 2 seconds. Always done unless `ipam` hands out each address once, as host-local does.",
			"Let the container take IPv6 addresses and routes from the routers of the segment, besides those of IPAM.", keys.Ours),
		keys.Table{
			attach.DNSKey("none", "DNS settings for the result. Those of the IPAM plugin are left out."),
			attach.IPAMKey(false, "`type` names the IPAM plugin; the other keys are for it."),
		},
	)
}
