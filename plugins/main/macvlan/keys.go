package macvlan

import (
	"math"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: attach.AskedMAC(), Args: attach.AskedMAC()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{MakesInterface: true, MTUWithinMaster: true, Kernel: []plugin.Feature{plugin.LinksLike(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE})}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		attach.MasterKeys(false, "the link of the default route", "The link to be on the segment of, such as `eth0`."),
		keys.Table{
			{Name: "mode", Type: keys.String, Words: []string{"bridge", "private", "vepa", "passthru"}, Default: "`bridge`",
				Doc: "`bridge`: macvlans of a master reach each other. `private`: they don't. `vepa`: they do if the switch sends their packets back. `passthru`: this is the only macvlan of its master, and has the master's MAC address."},
			attach.MTUKey("the master's", "MTU of the interface, at most the master's."),
			attach.MACKey("The MAC address."),
			{Name: "bcqueuelen", Type: keys.Int, Range: &keys.Range{Max: math.MaxUint32}, Since: "1.6.0", Default: "the kernel's, 1000",
				Doc: "Packets that may wait to be copied to all macvlans of the master. Of several macvlans of a master the largest value counts. Needs Linux 5.11."},
		},
		attach.AddressKeys("Look for other users of an IPv6 address before it is used: 1 to 2 seconds. Always done unless `ipam` hands out each address once, as host-local does.",
			"Let the container take IPv6 addresses and routes from the routers of the segment, besides those of IPAM. Without `ipam` it always does.", keys.Ours),
		keys.Table{
			attach.DNSKey("none", "DNS settings for the result. Those of the IPAM plugin are left out."),
			attach.IPAMKey(false, "`type` names the IPAM plugin; the other keys are for it. Without `ipam` the network is layer 2 only."),
		},
	)
}
