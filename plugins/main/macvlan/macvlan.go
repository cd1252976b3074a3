// Package macvlan gives containers a macvlan: a link with a MAC address of its own on the segment of another one, its master.
package macvlan

import (
	"context"
	"fmt"
	"math"
	"strconv"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the macvlan plugin.
type Plugin struct{ attach.InContainer }

// config is what the macvlan plugin reads of a configuration; docs/plugins/macvlan.md explains each key.
type config struct {
	attach.Config
	master attach.Master
	mode   netlink.MacvlanMode
	queue  int // packets; 0 is the kernel's default
}

var modes = map[string]netlink.MacvlanMode{
	"bridge":   netlink.MACVLAN_MODE_BRIDGE,
	"private":  netlink.MACVLAN_MODE_PRIVATE,
	"vepa":     netlink.MACVLAN_MODE_VEPA,
	"passthru": netlink.MACVLAN_MODE_PASSTHRU,
}

// parse reads the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	o := r.Config
	c := &config{Config: *attach.Parse(o), master: attach.ReadMaster(o)}
	c.Segment, c.OwnDNS = true, true
	c.ReadMTU(o)
	c.master.MTU = c.MTU
	c.ReadMACKey(o)
	mode := ""
	if o.String("mode", &mode); mode == "" {
		mode = "bridge"
	}
	known := false
	if c.mode, known = modes[mode]; !known {
		o.Fail("mode", "bridge, private, vepa or passthru", strconv.Quote(mode))
	}
	o.Int("bcqueuelen", &c.queue)
	if c.queue < 0 || int64(c.queue) > math.MaxUint32 {
		o.Fail("bcqueuelen", "a number of packets", strconv.Itoa(c.queue))
	}
	if err := o.Err(); err != nil {
		return nil, err
	}
	return c, c.ReadMAC(r)
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
	macvlan := &netlink.Macvlan{LinkAttrs: attrs, Mode: c.mode, BCQueueLen: uint32(c.queue)}
	if err := a.MakeLink(ctx, macvlan); err != nil {
		return nil, err
	}
	if c.queue > 0 {
		if err := checkQueue(a); err != nil {
			return nil, err
		}
	}
	if c.mode == netlink.MACVLAN_MODE_PASSTHRU && c.MAC != nil {
		// The kernel has made it with its master's address. This gives the master another one too, as long as the link is there.
		if err := a.SetMAC(c.MAC); err != nil {
			return nil, err
		}
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// checkQueue makes sure that the kernel has set the length of the queue: before 5.11 it lets that be, without an error.
func checkQueue(a *attach.Attachment) error {
	links, err := a.LinksInside()
	if err != nil {
		return err
	}
	l, err := links.LinkByName(a.IfName)
	if err != nil {
		return fmt.Errorf("look up %s: %w", a.IfName, err)
	}
	if made, ok := l.(*netlink.Macvlan); !ok || made.BCQueueLen == 0 {
		return &plugin.MissingFeature{Name: "queues of broadcasts whose length can be set", Version: "5.11", Instead: "leave out bcqueuelen", Err: unix.EOPNOTSUPP}
	}
	return nil
}

// Mend looks at the link and its addresses, and its master and mode.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "macvlan", m)
	if err != nil {
		return err
	}
	m.Fail(a.Mend(ctx))
	m.Fail(a.MendMaster(c.master))
	if l, ok := a.Link().(*netlink.Macvlan); !r.HostSide && (!ok || l.Mode != c.mode) {
		m.Fail(attach.Different("%s is not in the mode that is configured", r.IfName))
	}
	return nil
}

// Status reports whether an ADD could be served.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	return attach.StatusOn(ctx, r, &c.Config, c.master)
}
