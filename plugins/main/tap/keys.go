package tap

import (
	"math"
	"slices"

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
	_, err := readConfig(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{MakesInterface: true}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return slices.Concat(
		keys.Table{
			{Name: "multiQueue", Type: keys.Bool, Default: "`false`",
				Doc: "Let several threads hold the tap, a queue for each. A program must hold it in the way that is set here."},
			{Name: "owner", Type: keys.Int, Range: &keys.Range{Max: math.MaxUint32 - 1}, Default: "anybody",
				Doc: "The number of the user that may hold the tap."},
			{Name: "group", Type: keys.Int, Range: &keys.Range{Max: math.MaxUint32 - 1}, Default: "anybody",
				Doc: "The number of the group that may hold the tap."},
			attach.MTUKey("the kernel's", "MTU of the tap."),
			attach.MACKey("MAC address of the tap, not of the machine that holds it."),
			{Name: "bridge", Type: keys.String, Since: "1.4.0", Default: "none",
				Doc: "A bridge in the container, which must be there, that the tap becomes a port of."},
			{Name: "selinuxContext", Type: keys.String, Default: "the plugin's",
				Doc: "SELinux context for the tap. An error where there is no SELinux."},
		},
		attach.AddressKeys("Look for other users of an IPv6 address before it is used. The kernel begins when a program holds the tap: ADD waits 5 seconds for that.",
			"Let the container take IPv6 addresses and routes from routers, which the machine can pretend to be. Without `ipam` they are never refused.", keys.Ours),
		keys.Table{
			attach.DNSKey("none", "DNS settings for the result, in place of IPAM's."),
			attach.IPAMKey(false, "`type` names the IPAM plugin; the other keys are for it."),
		},
	)
}
