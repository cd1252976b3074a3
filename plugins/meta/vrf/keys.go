package vrf

import (
	"math"

	"github.com/vishvananda/netlink"

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
	_, err := parse(r.Config)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{RoutesBySource: true, Kernel: []plugin.Feature{plugin.LinksLike(&netlink.Vrf{Table: 5})}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "vrfname", Type: keys.String, Form: keys.Interface, Required: true,
			Doc: "The VRF, 1 to 15 characters. It is made unless the container has it; other interfaces of the container may be in it."},
		{Name: "table", Type: keys.Int, Range: &keys.Range{Max: math.MaxUint32}, Default: "one of its own, or that of the VRF that is there",
			Doc: "The number of the VRF's routing table. Not 253 to 255, which are the kernel's."},
	}
}
