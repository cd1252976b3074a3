// Package vlan puts containers into an 802.1Q VLAN of another link, their master.
package vlan

import (
	"context"
	"fmt"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the vlan plugin.
type Plugin struct{ attach.InContainer }

// config is what the vlan plugin reads of a configuration; docs/plugins/vlan.md explains each key.
type config struct {
	attach.Config
	master attach.Master
	id     int
}

// parse reads the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	o := r.Config
	c := &config{Config: *attach.Parse(o), master: attach.ReadMaster(o)}
	c.Segment, c.OwnDNS = true, true
	c.ReadMTU(o)
	c.master.MTU = c.MTU
	o.Int("vlanId", &c.id)
	if c.id < 0 || c.id > 4094 {
		o.Fail("vlanId", "a VLAN id from 0 to 4094", strconv.Itoa(c.id))
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	switch {
	case c.master.Name == "":
		return nil, plugin.ConfigError("name the link that has the VLAN's packets", `"master" is missing`)
	case c.IPAM == "":
		return nil, plugin.ConfigError(`add "ipam"`, "vlan requires an IPAM configuration")
	}
	return c, nil
}

// Add makes the link and gives it IPAM's addresses.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	a, attrs, err := attach.BeginOn(ctx, r, &c.Config, c.master)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.MakeLink(ctx, &netlink.Vlan{LinkAttrs: attrs, VlanId: c.id}); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// Mend looks at the link and its addresses, and its master, VLAN and MTU.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "vlan", m)
	if err != nil || r.HostSide {
		return err
	}
	m.Fail(a.MendMaster(c.master))
	if l, ok := a.Link().(*netlink.Vlan); !ok || l.VlanId != c.id {
		m.Fail(attach.Different("%s is not in VLAN %d", r.IfName, c.id))
	}
	if is := a.Link().Attrs().MTU; c.MTU != 0 && is != c.MTU {
		m.Mend(attach.Different("%s has the MTU %d, configured is %d", r.IfName, is, c.MTU), fmt.Sprintf("give %s the MTU %d", r.IfName, c.MTU), func() error {
			inside, err := r.LinksInside()
			if err != nil {
				return err
			}
			if err := inside.LinkSetMTU(a.Link(), c.MTU); err != nil {
				return err
			}
			return a.RefuseRouters() // the kernel begins IPv6 anew at 1,280
		})
	}
	return a.Mend(ctx) // last, since a link whose MTU is less than 1,280 takes no addresses of IPv6
}

// Status reports whether an ADD could be served.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	return attach.StatusOn(ctx, r, &c.Config, c.master)
}
