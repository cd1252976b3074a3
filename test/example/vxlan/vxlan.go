// Package vxlan puts containers into a VXLAN: a layer 2 network between nodes, in UDP packets of theirs. It is the example of
// docs/project/writing-a-plugin.md.
package vxlan

import (
	"context"
	"net"
	"slices"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the vxlan plugin.
type Plugin struct{ attach.InContainer }

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: slices.Concat(
		attach.MasterKeys(false, "the link of the default route", "The link of the node by which packets leave, such as `eth0`."),
		keys.Table{
			{Name: "vni", Type: keys.Int, Range: &keys.Range{Max: 1<<24 - 1}, Default: "`0`", Doc: "The number of the VXLAN."},
			{Name: "remote", Type: keys.String, Form: keys.Address, Required: true, Doc: "The other node, or a multicast group of nodes."},
		},
		attach.AddressKeys("Look for other users of an IPv6 address before it is used.", "Let the container listen to routers of the VXLAN.", keys.Ours),
		keys.Table{attach.DNSKey("IPAM's", "DNS settings for the result."), attach.IPAMKey(true, "`type` names the IPAM plugin.")},
	)}
}

// config is what the plugin reads of a configuration.
type config struct {
	attach.Config
	master attach.Master
	vni    int
	remote net.IP
}

// parse reads the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	o, remote := r.Config, ""
	c := &config{Config: *attach.Parse(o), master: attach.ReadMaster(o)}
	c.Segment = true
	if o.Int("vni", &c.vni); c.vni < 0 || c.vni >= 1<<24 {
		o.Fail("vni", "a number from 0 to 16777215", strconv.Itoa(c.vni))
	}
	o.String("remote", &remote)
	if c.remote = net.ParseIP(remote); c.remote == nil {
		o.Fail("remote", "the IP address of another node", strconv.Quote(remote))
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	if c.IPAM == "" {
		return nil, plugin.ConfigError(`add "ipam"`, "vxlan requires an IPAM configuration")
	}
	return c, nil
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r)
	return err
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
	attrs.HardwareAddr = a.ContainerMAC()
	l := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: c.vni, Group: c.remote, VtepDevIndex: attrs.ParentIndex, Port: 4789, Learning: true}
	if err := a.MakeLink(ctx, l); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// Mend looks at the link and its addresses, and its number.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "vxlan", m)
	if err != nil || r.HostSide {
		return err
	}
	if l, ok := a.Link().(*netlink.Vxlan); !ok || l.VxlanId != c.vni {
		m.Fail(attach.Different("%s is not in VXLAN %d", r.IfName, c.vni))
	}
	return a.Mend(ctx)
}

// Status reports whether an ADD could be served.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	return attach.StatusOn(ctx, r, &c.Config, c.master)
}
