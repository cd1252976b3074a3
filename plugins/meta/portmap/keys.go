package portmap

import (
	"math"

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
	return plugin.Facts{PublishesPorts: true}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "snat", Type: keys.Bool, Default: "`true`",
			Doc: "Make published ports answer where they otherwise could not: to the container itself, to other containers behind the same link, and to the host at 127.0.0.1. See [who reaches a published port](#who-reaches-a-published-port)."},
		{Name: "masqAll", Type: keys.Bool, Since: "1.2.0", Default: "`false`",
			Doc: "Masquerade every connection to a published port: the container sees an address of the host in place of the client's. Needs `snat`."},
		{Name: "backend", Type: keys.String, Words: []string{"nftables", "iptables"}, Since: "1.6.0", Default: "see [backends](../operate/netfilter.md#backends)",
			Doc: "The packet filter that publishes the ports. With `iptables` the rules are those of the reference plugin."},
		{Name: "markMasqBit", Type: keys.Int, Range: &keys.Range{Max: 31}, Default: "`13`",
			Doc: "The bit of the packet mark that says \"masquerade this\". Another one than 13 makes the backend iptables."},
		{Name: "externalSetMarkChain", Type: keys.String, Default: "none",
			Doc: "An iptables chain that marks packets to be masqueraded, such as `KUBE-MARK-MASQ`, in place of our own mark. Makes the backend iptables. Not together with `markMasqBit`."},
		{Name: "conditionsV4", Type: keys.Strings, Default: "none",
			Doc: "More conditions that an IPv4 connection must meet: words of iptables (`[\"!\", \"-d\", \"192.0.2.9\"]`), which make the backend iptables, or [of nft](../operate/netfilter.md#conditions), which has to be installed then."},
		{Name: "conditionsV6", Type: keys.Strings, Default: "none",
			Doc: "The same for IPv6."},
	}
}

// runtimeKeys are those that the runtime fills in.
func runtimeKeys() keys.Table {
	return keys.Table{
		{Name: "portMappings", Type: keys.Objects, Keys: mappingKeys(),
			Doc: "The ports to publish."},
	}
}

// mappingKeys are those of a port to publish.
func mappingKeys() keys.Table {
	return keys.Table{
		{Name: "hostPort", Type: keys.Int, Range: &keys.Range{Min: 1, Max: math.MaxUint16}, Required: true,
			Doc: "The port of the host."},
		{Name: "containerPort", Type: keys.Int, Range: &keys.Range{Min: 1, Max: math.MaxUint16}, Required: true,
			Doc: "The port of the container."},
		{Name: "protocol", Type: keys.String, Required: true,
			Doc: "`tcp`, `udp` or `sctp`, in upper or lower case."},
		{Name: "hostIP", Type: keys.String, Form: keys.Address,
			Doc: "The host's address to publish on. Empty or absent: all of them, IPv4 and IPv6. `0.0.0.0`: all IPv4 addresses. `::`: all IPv6 addresses."},
	}
}
