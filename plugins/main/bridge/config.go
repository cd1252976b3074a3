package bridge

import (
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the bridge plugin reads of a configuration; docs/bridge.md
// explains each key.
type config struct {
	bridge        string
	gateway       bool // isGateway or isDefaultGateway
	defaultRoute  bool // isDefaultGateway
	forceAddress  bool
	masquerade    bool
	masqueradeBy  backend.Wish
	mtu           int // bytes; 0 is the kernel's default
	promiscuous   bool
	port          link.Port
	dad           bool
	spoofCheck    bool // macspoofchk
	containerDown bool
	mac           string // of the container's end; "" is one of its own
	ipam          string // "" is layer 2 only
	dns           types.DNS
}

// The least MTU of IPv4 (RFC 791) and the most the kernel gives a veth.
const minMTU, maxMTU = 68, 65535

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	c := locate(r)
	o := r.Config
	o.Bool("forceAddress", &c.forceAddress)
	o.Int("mtu", &c.mtu)
	o.Bool("hairpinMode", &c.port.Hairpin)
	o.Bool("portIsolation", &c.port.Isolated)
	o.Bool("promiscMode", &c.promiscuous)
	o.Bool("enabledad", &c.dad)
	o.Bool("macspoofchk", &c.spoofCheck)
	o.Bool("disableContainerInterface", &c.containerDown)
	c.dns = plugin.ParseDNS(o.Object("dns"))
	if err := c.readMAC(r); err != nil {
		return nil, err
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, unsupported(r)
}

// locate reads what DEL and GC need: the keys that say where an attachment is.
func locate(r *plugin.Request) *config {
	c := &config{bridge: "cni0"}
	o := r.Config
	o.String("bridge", &c.bridge)
	o.Bool("isGateway", &c.gateway)
	o.Bool("isDefaultGateway", &c.defaultRoute)
	o.Bool("ipMasq", &c.masquerade)
	c.masqueradeBy.Key = "ipMasqBackend"
	o.String(c.masqueradeBy.Key, &c.masqueradeBy.Value)
	o.Object("ipam").String("type", &c.ipam)
	c.gateway = c.gateway || c.defaultRoute
	return c
}

// readMAC takes the address of the container's end from the first of
// runtimeConfig.mac, args.cni.mac and MAC in CNI_ARGS that gives one.
func (c *config) readMAC(r *plugin.Request) error {
	args, err := plugin.Arguments(r.Args, "MAC")
	if err != nil {
		return err
	}
	c.mac = args["MAC"]
	r.Config.Object("args").Object("cni").String("mac", &c.mac)
	r.Config.Object("runtimeConfig").String("mac", &c.mac)
	return nil
}

func (c *config) validate() error {
	switch {
	case c.bridge == "" || len(c.bridge) > 15:
		return plugin.ConfigError("use 1 to 15 characters", "bridge: %q is no interface name", c.bridge)
	case c.mtu != 0 && (c.mtu < minMTU || c.mtu > maxMTU):
		return plugin.ConfigError("use a value from 68 to 65535, or 0 for the kernel's default", "mtu: %d is out of range", c.mtu)
	case c.port.Hairpin && c.promiscuous:
		return plugin.ConfigError("a promiscuous bridge reflects packets already: set only one of them",
			"hairpinMode and promiscMode can't both be set")
	case c.containerDown && c.ipam != "":
		return plugin.ConfigError("remove the ipam section, or let the interface come up",
			"disableContainerInterface can't be used with IPAM (%s): addresses need an interface that is up", c.ipam)
	}
	if err := c.masqueradeBy.Validate(); err != nil {
		return err
	}
	if c.mac == "" {
		return nil
	}
	mac, err := link.ParseMAC(c.mac)
	switch {
	case err != nil:
		return plugin.ConfigError("correct the MAC address that was asked for", "%v", err)
	case mac[0]&1 != 0 || mac == [6]byte{}:
		return plugin.ConfigError("ask for a unicast address, such as 02:00:00:12:34:56", "an interface can't have the MAC address %s", c.mac)
	}
	return nil
}

// unsupported refuses keys of the reference plugin that this version does not
// have: to ignore them would be to leave out protection or separation that the
// configuration asks for.
func unsupported(r *plugin.Request) error {
	o := r.Config
	vlan := 0
	o.Int("vlan", &vlan)
	if err := o.Err(); err != nil {
		return err
	}
	key := ""
	switch {
	case vlan != 0:
		key = "vlan"
	case o.Has("vlanTrunk"):
		key = "vlanTrunk"
	default:
		return nil
	}
	return &types.Error{
		Code: types.ErrUnsupportedField, Msg: key + ": this version of the bridge plugin does not have it",
		Details: "remove the key, or use the reference bridge plugin for this network",
	}
}

// gateways returns the addresses that the bridge itself must have.
func (c *config) gateways(ips []*types100.IPConfig) []netip.Prefix {
	if !c.gateway {
		return nil
	}
	var list []netip.Prefix
	for _, ip := range ips {
		if ip.Gateway != nil {
			list = append(list, netip.PrefixFrom(plugin.Addr(ip.Gateway), plugin.Prefix(ip.Address).Bits()))
		}
	}
	return list
}
