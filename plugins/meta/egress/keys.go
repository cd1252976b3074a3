package egress

import (
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: runtimeKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r.Config)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{ClosesEgress: true}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return append(listKeys(),
		keys.Key{Name: "internal", Type: keys.Bool, Default: "`false`",
			Doc: "The network's own subnets are open and nothing else: not the outside, no other network, nothing of the node. Not together with `allow`. See [internal](#internal)."},
		keys.Key{Name: "backend", Type: keys.String, Words: []string{"nftables"}, Default: "`nftables`",
			Doc: "The packet filter. With `iptables` an ADD fails: it can't do what the lists need."})
}

// runtimeKeys are those that the runtime fills in.
func runtimeKeys() keys.Table {
	return keys.Table{
		{Name: "egress", Type: keys.Object, Keys: listKeys(),
			Doc: "Lists of this container. They close more than the network's do, and never open what those close."},
	}
}

// listKeys are those of lists.
func listKeys() keys.Table {
	return keys.Table{
		{Name: "allow", Type: keys.Strings, Default: "all is open",
			Doc: "The destinations that the container may reach. All else is closed. An empty list closes everything. See [entries](#entries)."},
		{Name: "deny", Type: keys.Strings, Default: "none",
			Doc: "Destinations that are closed, whatever `allow` says. Without `allow` all else is open."},
	}
}
