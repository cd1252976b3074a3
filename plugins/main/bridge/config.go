package bridge

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the bridge plugin reads of a configuration; docs/bridge.md explains each key.
type config struct {
	attach.Config
	name              string // of the bridge
	forceAddress      bool
	masquerade        attach.Masquerade
	promiscuous       bool
	hairpin, isolated bool // of the port
	spoofCheck        bool // macspoofchk
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
	if err := c.ReadMAC(r); err != nil {
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
	c := &config{Config: *attach.Locate(r.Config), name: "cni0"}
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
	case c.name == "" || len(c.name) > 15:
		return plugin.ConfigError("use 1 to 15 characters", "bridge: %q is no interface name", c.name)
	case strings.Contains(c.name, "%"):
		return plugin.ConfigError("use a name without it", "bridge: %q holds %%, which the kernel takes for a pattern", c.name)
	case c.hairpin && c.promiscuous:
		return plugin.ConfigError("a promiscuous bridge reflects packets already: set only one of them",
			"hairpinMode and promiscMode can't both be set")
	case c.Down && c.IPAM != "":
		return plugin.ConfigError("remove the ipam section, or let the interface come up",
			"disableContainerInterface can't be used with IPAM (%s): addresses need an interface that is up", c.IPAM)
	}
	return c.masquerade.By.Validate()
}

// unsupported refuses keys of the reference plugin that this version does not have: to ignore them would be to leave out separation
// that the configuration asks for.
func unsupported(r *plugin.Request) error {
	vlan, trunk := 0, 0
	r.Config.Int("vlan", &vlan)
	r.Config.Objects("vlanTrunk", func(*conf.Object) { trunk++ })
	if err := r.Config.Err(); err != nil {
		return err
	}
	key := "vlan"
	switch {
	case vlan == 0 && trunk == 0:
		return nil
	case vlan == 0:
		key = "vlanTrunk"
	}
	return types.NewError(types.ErrUnsupportedField, key+": this version of the bridge plugin does not have it",
		"remove the key, or use the reference bridge plugin for this network")
}
