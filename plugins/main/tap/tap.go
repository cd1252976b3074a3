// Package tap gives containers a tap link: what a program that holds it, such as a virtual machine, writes to it comes out of the link,
// and the other way round.
package tap

import (
	"context"
	"errors"
	"fmt"
	"os"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the tap plugin.
type Plugin struct{ attach.InContainer }

const device = "/dev/net/tun"

// Add makes the tap and gives it IPAM's addresses.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	bridge, err := c.findBridge(r)
	if err != nil {
		return nil, err
	}
	a, err := attach.Begin(ctx, r, &c.Config)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.Step(ctx, "link"); err != nil {
		return nil, err
	}
	if err := a.Inside(func() error { return create(a, c, bridge) }); err != nil {
		return nil, err
	}
	if err := a.Made(a.DeleteLink); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// create makes the tap in the calling thread's namespace. Until it is told to persist it goes with the open file, so that a tap is
// there with all of its settings or not at all.
func create(a *attach.Attachment, c *config, bridge netlink.Link) error {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return c.withRemedy(a.IfName, err)
	}
	defer file.Close()
	fd := int(file.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, a.LinkIndex()); err != nil { // which DEL knows it by
		return fmt.Errorf("choose the index of tap %s: %w", a.IfName, err)
	}
	if err := c.makeTap(fd, a.IfName); err != nil {
		return c.withRemedy(a.IfName, err)
	}
	if err := configure(a, c, bridge); err != nil {
		return fmt.Errorf("set up tap %s: %w", a.IfName, err)
	}
	for request, id := range map[uint]*int{unix.TUNSETOWNER: c.owner, unix.TUNSETGROUP: c.group} {
		if id == nil {
			continue
		}
		if err := unix.IoctlSetInt(fd, request, *id); errors.Is(err, unix.EINVAL) {
			return plugin.Errorf("the user namespace that the plugin runs in has no such id: leave out owner and group, or name 0, which is its own user", "give tap %s to user or group %d: %w", a.IfName, *id, err)
		} else if err != nil {
			return fmt.Errorf("give tap %s to user or group %d: %w", a.IfName, *id, err)
		}
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("let tap %s persist: %w", a.IfName, err)
	}
	return nil
}

// makeTap makes the tap that an open file of /dev/net/tun then is, under a name that must be free.
func (c *config) makeTap(fd int, name string) error {
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if c.multiQueue {
		flags |= unix.IFF_MULTI_QUEUE
	}
	if c.label != "" {
		return makeLabelledTap(c.label, fd, name, flags)
	}
	return makeTap(fd, name, flags)
}

func configure(a *attach.Attachment, c *config, bridge netlink.Link) error {
	links, err := a.LinksInside()
	if err != nil {
		return err
	}
	l, err := links.LinkByName(a.IfName)
	if err != nil {
		return err
	}
	if err := links.LinkSetHardwareAddr(l, a.ContainerMAC()); err != nil {
		return err
	}
	if c.MTU != 0 {
		if err := links.LinkSetMTU(l, c.MTU); err != nil {
			return err
		}
	}
	if bridge == nil {
		return nil
	}
	return links.LinkSetMaster(l, bridge)
}

// withRemedy says what to do about an error of making a tap.
func (c *config) withRemedy(name string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.EBUSY):
		remedy = "the container already has an interface of that name: give the attachment another CNI_IFNAME, or remove that interface"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return plugin.MissingLinkType("tap", err)
	case errors.Is(err, unix.EACCES):
		remedy = "whom the plugin runs as has to read and write " + device + ", as distributions let everybody (mode 0666): a user namespace does not give that"
	case c.label != "":
		remedy = "the policy of SELinux must have that context, and let the runtime's enter it through the plugin's binary: see `ausearch -m avc`"
	}
	return plugin.Errorf(remedy, "make tap %s: %w", name, err)
}

// Mend looks at the tap and its addresses, and whether it is in its bridge.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, &c.Config, "tuntap", m)
	if err != nil || r.HostSide {
		return err
	}
	if t, ok := a.Link().(*netlink.Tuntap); !ok || t.Mode != netlink.TUNTAP_MODE_TAP {
		m.Fail(attach.Different("interface %s of the container is not a tap but a tun", r.IfName))
	}
	bridge, err := c.findBridge(r)
	if m.Fail(err); bridge != nil && a.Link().Attrs().MasterIndex != bridge.Attrs().Index {
		lacks := attach.Different("interface %s is not in bridge %s of the container", r.IfName, c.bridge)
		m.Mend(lacks, "make "+r.IfName+" a port of bridge "+bridge.Attrs().Name, func() error {
			inside, err := r.LinksInside()
			if err != nil {
				return err
			}
			return inside.LinkSetMaster(a.Link(), bridge)
		})
	}
	return a.Mend(ctx)
}

// Status reports whether an ADD could be served.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	if _, err := os.Stat(device); err != nil { // to open it may load the module
		return plugin.MissingLinkType("tap", err)
	}
	return attach.Status(ctx, r, &c.Config)
}
