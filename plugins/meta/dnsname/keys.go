package dnsname

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
	_, err := parse(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts { return plugin.Facts{NamesContainers: true} }

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "domainName", Type: keys.String, Default: "none",
			Doc: "A domain in which the names are, too: with `dns.podman` a container `web` is also `web.dns.podman`. It is added to the search list."},
		{Name: "nodeServers", Type: keys.Bool, Since: keys.Ours, Default: "`true`",
			Doc: "Whether the node's servers stand behind the gateway, for when the agent is away. `false` is for [Alpine](#alpine)."},
	}
}

// runtimeKeys are those that the runtime fills in.
func runtimeKeys() keys.Table {
	return keys.Table{
		{Name: "aliases", Type: keys.Object,
			Doc: "More names of the container: an object that has a list of names for each network."},
	}
}
