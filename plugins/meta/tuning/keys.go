package tuning

import (
	"math"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: runtimeKeys(), Args: changeKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := readSettings(r)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{Dirs: []string{defaultDataDir}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return append(changeKeys(), keys.Key{Name: "dataDir", Type: keys.String, Form: keys.Path, Default: "`/run/cni/tuning`",
		Doc: "Where the previous attributes are kept until DEL."})
}

// changeKeys are what can be changed.
func changeKeys() keys.Table {
	return keys.Table{
		{Name: "sysctl", Type: keys.StringMap, Default: "none",
			Doc: "Sysctls and their values, set in this order and before anything else. See [names of sysctls](#names-of-sysctls)."},
		{Name: "mac", Type: keys.String, Form: keys.MAC, Default: "as it is",
			Doc: "MAC address of one interface, six bytes: no group address."},
		{Name: "promisc", Type: keys.Bool, Default: "`false`",
			Doc: "Make the interface promiscuous. `false` leaves it as it is."},
		{Name: "mtu", Type: keys.Int, Range: &keys.Range{Min: leastMTU, Max: mostMTU, Zero: true}, Default: "as it is",
			Doc: "MTU in bytes; the kind of link may have narrower bounds. 0 leaves it as it is."},
		{Name: "allmulti", Type: keys.Bool, Default: "as it is",
			Doc: "Receive all multicast packets, or not."},
		{Name: "txQLen", Type: keys.Int, Range: &keys.Range{Max: math.MaxInt32}, Since: "1.4.0", Default: "as it is",
			Doc: "Length of the transmit queue, in packets."},
	}
}

// runtimeKeys are those that the runtime fills in.
func runtimeKeys() keys.Table {
	return keys.Table{
		{Name: "mac", Type: keys.String, Form: keys.MAC,
			Doc: "The MAC address."},
	}
}
