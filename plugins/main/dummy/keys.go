package dummy

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
	return plugin.Facts{MakesInterface: true, LeadsNowhere: true, AnyGateway: true, Kernel: []plugin.Feature{plugin.LinksLike(&netlink.Dummy{})}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		attach.AddressKeys("Look for other users of an IPv6 address before it is used. Nobody else is on a dummy link.",
			"Let the container take IPv6 addresses and routes from routers. There is none on a dummy link.", keys.Ours),
		keys.Table{
			attach.DNSKey("IPAM's", "DNS settings for the result. A `domain` or any list, an empty one too, takes the place of all of IPAM's."),
			attach.IPAMKey(true, "`type` names the IPAM plugin; the other keys are for it."),
		},
	)
}
