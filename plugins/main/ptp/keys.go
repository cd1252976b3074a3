package ptp

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
	return plugin.Facts{MakesInterface: true, HasHostEnd: true, IsGateway: true, AnyGateway: true, Kernel: []plugin.Feature{plugin.LinksLike(&netlink.Veth{PeerName: "peer"})}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		attach.MasqueradeKeys(),
		keys.Table{attach.MTUKey("the kernel's", "MTU of both ends of the veth pair.")},
		attach.AddressKeys(
			"Look for other users of an IPv6 address (duplicate address detection) before it is used: 1 to 2 seconds. The link has no one else who could have it.",
			"Let the container take IPv6 addresses and routes from routers. The host is the only one that could send them.", keys.Ours),
		keys.Table{
			attach.DNSKey("IPAM's", "DNS settings for the result. A `domain` or any list, an empty one too, takes the place of all of IPAM's."),
			attach.IPAMKey(true, "`type` names the IPAM plugin; the other keys are for it."),
		},
	)
}
