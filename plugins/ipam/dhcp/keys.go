package dhcp

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
	_, err := Read(r.Config, r.Args)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(ipam *conf.Object) plugin.Facts {
	d := &plugin.Daemon{Socket: readSocket(ipam), Arguments: []string{"daemon"}, Unit: "cnibox-dhcp.socket", ReferenceUnit: "cni-dhcp.socket"}
	if d.Socket != DefaultSocket {
		d.Arguments, d.Unit, d.ReferenceUnit = append(d.Arguments, "-socketpath", d.Socket), "", ""
	}
	return plugin.Facts{Daemon: d, RenewsInside: true, Dirs: []string{string(DirOf(DefaultSocket))}}
}

// ownKeys are those of the object "ipam".
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "families", Type: keys.Strings, Since: keys.Ours, Words: []string{"ipv4", "ipv6"}, Default: "`[\"ipv4\"]`",
			Doc: "An address of each of these families, or none."},
		{Name: "request", Type: keys.Objects, Since: "1.1.0", Default: "none", Keys: requestKeys(),
			Doc: "Options that the server is asked for by IPv4, besides routers, subnet mask, name servers, domain, search list and MTU."},
		{Name: "provide", Type: keys.Objects, Since: "1.1.0", Default: "none", Keys: provideKeys(),
			Doc: "Options that are sent to the server."},
		{Name: "priority", Type: keys.Int, Since: "1.6.0", Default: "the kernel's",
			Doc: "Priority (metric) of the routes."},
		{Name: "daemonSocketPath", Type: keys.String, Form: keys.Path, Default: "`/run/cni/dhcp.sock`",
			Doc: "Where the daemon listens."},
	}
}

// requestKeys are those of an option to ask for.
func requestKeys() keys.Table {
	return keys.Table{
		{Name: "option", Type: keys.String,
			Doc: "The number of an option, 1 to 254, or the name of one: `subnet-mask`, `routers`, `host-name`, `vendor-class-identifier`, `dhcp-client-identifier`, `user-class`."},
		{Name: "skipDefault", Type: keys.Bool, Default: "`false`",
			Doc: "In one of them, leave out those that are asked for without this key."},
	}
}

// provideKeys are those of an option to send.
func provideKeys() keys.Table {
	return keys.Table{
		{Name: "option", Type: keys.String, Required: true,
			Doc: "The number of an option, 1 to 254, or the name of one: `subnet-mask`, `routers`, `host-name`, `vendor-class-identifier`, `dhcp-client-identifier`, `user-class`."},
		{Name: "value", Type: keys.String,
			Doc: "The option's value, at most 255 bytes."},
		{Name: "fromArg", Type: keys.String,
			Doc: "The name of a key of `CNI_ARGS` whose value comes before `value`."},
	}
}
