package bridge

import (
	"cmp"
	"net"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the bridge plugin reads of a configuration; docs/plugins/bridge.md explains each key.
type config struct {
	attach.Config
	name              string // of the bridge
	forceAddress      bool
	masquerade        attach.MasqueradeConfig
	promiscuous       bool
	bridgeMAC         net.HardwareAddr // of one that is made; nil is any
	hairpin, isolated bool             // of the port
	spoofCheck        bool             // macspoofchk

	vlan            int         // of what has no tag; 0 is none
	trunk           []vlanRange // of what has a tag
	keepDefaultVLAN bool        // preserveDefaultVlan
	filterVLANs     bool        // have a bridge that is made filter them
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	c := locate(r)
	o := r.Config
	c.Complete(o)
	c.ReadMTU(o)
	o.Bool("forceAddress", &c.forceAddress)
	o.Bool("hairpinMode", &c.hairpin)
	o.Bool("portIsolation", &c.isolated)
	o.Bool("promiscMode", &c.promiscuous)
	o.Bool("macspoofchk", &c.spoofCheck)
	o.Bool("disableContainerInterface", &c.Down)
	vlans := c.readVLANs(o)
	if err := c.ReadMAC(r); err != nil {
		return nil, err
	}
	if err := cmp.Or(o.Err(), vlans, c.validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// usualBridge is the bridge that a configuration need not name.
const usualBridge = "cni0"

// locate reads what DEL and GC need: the keys that say where an attachment is.
func locate(r *plugin.Request) *config {
	c := &config{Config: *attach.Locate(r.Config), name: usualBridge}
	o := r.Config
	o.String("bridge", &c.name)
	o.Bool("isGateway", &c.Gateway)
	o.Bool("isDefaultGateway", &c.DefaultRoute)
	c.masquerade = attach.ReadMasquerade(o)
	c.Gateway = c.Gateway || c.DefaultRoute
	return c
}

func (c *config) validate() error {
	switch {
	case link.ValidateName(c.name) != nil:
		return plugin.ConfigError("use 1 to 15 characters", "bridge: %q is no interface name: %v", c.name, link.ValidateName(c.name))
	case c.gatewayLink() != "" && link.ValidateName(c.gatewayLink()) != nil:
		return plugin.ConfigError("give the bridge a shorter name", "bridge: %s, the name of the VLAN's gateway, has more than 15 characters", c.gatewayLink())
	case c.hairpin && c.promiscuous:
		return plugin.ConfigError("a promiscuous bridge reflects packets already: set only one of them",
			"hairpinMode and promiscMode can't both be set")
	case c.Down && c.IPAM != "":
		return plugin.ConfigError("remove the ipam section, or let the interface come up",
			"disableContainerInterface can't be used with IPAM (%s): addresses need an interface that is up", c.IPAM)
	}
	return c.masquerade.By.Validate()
}
