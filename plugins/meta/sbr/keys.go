package sbr

import (
	"math"

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
	_, err := readConfig(r.Config)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{RoutesBySource: true, RouteProtocol: protocol}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "table", Type: keys.Int, Range: &keys.Range{Min: 1, Max: math.MaxUint32}, Since: "1.6.0", Default: "tables of its own",
			Doc: "A routing table that somebody else fills. Then there are rules alone, and the other keys do nothing."},
		{Name: "gateways", Type: keys.Strings, Form: keys.Address, Since: "after 1.9.1", Default: "those of the addresses",
			Doc: "At most one IPv4 and one IPv6 address: the gateways of the default routes."},
		{Name: "addSourceHints", Type: keys.Bool, Since: "after 1.9.1", Default: "`false`",
			Doc: "Leave routes to neighbours in the main table, with the interface's address as the one to choose."},
	}
}
