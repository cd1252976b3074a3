package firewall

import (
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
	return plugin.Facts{OpensFirewall: true}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "backend", Type: keys.String, Words: []string{"nftables", "iptables", "firewalld"}, Default: "firewalld if it is running, else nftables if the kernel has it, else iptables",
			Doc: "The firewall that lets packets pass. Any other value is an error; the reference plugin takes it for none."},
		{Name: "iptablesAdminChainName", Type: keys.String, Default: "`CNI-ADMIN`",
			Doc: "The administrator's chain, in table filter of iptables. Its rules come before those that accept. Made if it is missing. Not used by firewalld."},
		{Name: "firewalldZone", Type: keys.String, Default: "`trusted`",
			Doc: "The zone that containers' addresses are made sources of."},
		{Name: "ingressPolicy", Type: keys.String, Words: []string{"open", "same-bridge", "isolated"}, Since: "1.1.0", Default: "`open`",
			Doc: "Which other containers may connect to the container, see [policies](#policies)."},
		{Name: "allowPublishedPorts", Type: keys.Bool, Since: keys.Ours, Default: "`false`",
			Doc: "With an `ingressPolicy`: let connections to published ports of the bridge's containers pass from other protected bridges, too. See [published ports between protected bridges](#published-ports-between-protected-bridges)."},
	}
}
