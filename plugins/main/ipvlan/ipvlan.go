// Package ipvlan gives containers an ipvlan: a link that shares the MAC address of another one, its master, and has IP addresses of
// its own.
package ipvlan

import (
	"context"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the ipvlan plugin.
type Plugin struct{ attach.InContainer }

// config is what the ipvlan plugin reads of a configuration; docs/plugins/ipvlan.md explains each key.
type config struct {
	attach.Config
	master attach.Master
	mode   netlink.IPVlanMode
}

var modes = map[string]netlink.IPVlanMode{
	"":    netlink.IPVLAN_MODE_L2,
	"l2":  netlink.IPVLAN_MODE_L2,
	"l3":  netlink.IPVLAN_MODE_L3,
	"l3s": netlink.IPVLAN_MODE_L3S,
}

// parse reads the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	o := r.Config
	c := &config{Config: *attach.Parse(o), master: attach.ReadMaster(o)}
	c.Segment, c.OwnDNS = true, true
	c.ReadMTU(o)
	mode, known := "", false
	o.String("mode", &mode)
	if c.mode, known = modes[mode]; !known {
		o.Fail("mode", "l2, l3 or l3s", strconv.Quote(mode))
	}
	return c, o.Err()
}

// Add makes the link, and gives it IPAM's addresses or those of the plugin before.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	before := r.PrevResult
	if c.IPAM == "" && (before == nil || len(before.IPs) == 0) {
		return nil, plugin.ConfigError(`add "ipam", or a plugin before this one that has addresses`,
			"ipvlan needs addresses: it has no MAC address of its own")
	}
	if c.master.Name == "" && before != nil {
		if len(before.Interfaces) != 1 || before.Interfaces[0].Name == "" {
			return nil, plugin.ConfigError(`name it with "master"`,
				"the plugin before this one must have one interface, which is the master, and it has %d", len(before.Interfaces))
		}
		c.master.Name = before.Interfaces[0].Name
	}
	a, attrs, err := attach.BeginOn(ctx, r, &c.Config, c.master)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if c.IPAM == "" {
		a.IPs, a.Routes = before.IPs, before.Routes
	}
	if err := a.MakeLink(ctx, &netlink.IPVlan{LinkAttrs: attrs, Mode: c.mode}); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// Mend looks at the link and its addresses, and its master and mode.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "ipvlan", m)
	if err != nil {
		return err
	}
	m.Fail(a.Mend(ctx))
	m.Fail(a.MendMaster(c.master))
	if l, ok := a.Link().(*netlink.IPVlan); !r.HostSide && (!ok || l.Mode != c.mode) {
		m.Fail(attach.Different("%s is not in the mode that is configured", r.IfName))
	}
	return nil
}

// Status reports whether an ADD could be served. A master that is not named may be the interface of a plugin before.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	switch {
	case err != nil:
		return err
	case c.master.Name == "":
		return attach.Status(ctx, r, &c.Config)
	}
	return attach.StatusOn(ctx, r, &c.Config, c.master)
}
