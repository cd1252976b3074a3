package daemon

import (
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// location is where a container's link is. The namespace is not kept open, so that it ends when the container does.
type location struct {
	path    string
	inode   int // of the namespace
	cookie  int // of the namespace, too: inodes are used again
	index   int // of the link
	mac     net.HardwareAddr
	mtu     int // only ADD knows it
	kind    string
	segment string // the host's link to the same segment, "" if that is not known
	port    string // the host's end of a veth; only ADD knows it
}

// entry calls a function in the namespace of a link.
type entry func(do func(l netlink.Link) error) error

// errGone says that the link is not there any more.
var errGone = errors.New("the container's interface is gone")

// findLocation looks for a container's link.
func findLocation(path, ifName string) (*location, error) {
	p := &location{path: path}
	n, err := p.open()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	own, err := netns.IsOwn(n)
	if own {
		err = plugin.CodeErrorf(types.ErrInvalidNetNS, "give the container a namespace of its own", "%s is the daemon's own network namespace", path)
	}
	if err != nil {
		return nil, err
	}
	return p, n.Do(func(host ns.NetNS) error {
		l, err := netlink.LinkByName(ifName)
		if err != nil {
			return plugin.ConfigError("call dhcp through a plugin that makes the interface first, such as bridge or macvlan",
				"no interface %s in %s: %w", ifName, path, err)
		}
		p.index, p.mac, p.mtu, p.kind = l.Attrs().Index, l.Attrs().HardwareAddr, l.Attrs().MTU, l.Type()
		p.findSegment(l, host)
		return nil
	})
}

// open opens the namespace, and notes which one that is if it is not known yet.
func (p *location) open() (ns.NetNS, error) {
	n, err := netns.Open(p.path)
	if err != nil {
		return nil, err
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(n.Fd()), &file); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	inode, cookie := int(file.Ino), 0
	err = n.Do(func(ns.NetNS) error {
		own, err := netns.OwnCookie()
		cookie = int(own)
		return err
	})
	switch {
	case err != nil:
	case p.inode == 0:
		p.inode, p.cookie = inode, cookie
	case p.inode != inode || p.cookie != cookie && p.cookie != 0: // an earlier daemon noted none
		err = fmt.Errorf("%w: another one is at %s", netns.ErrNotExist, p.path)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// enter is the entry to the container's link.
func (p *location) enter(do func(l netlink.Link) error) error {
	n, err := p.open()
	if errors.Is(err, netns.ErrNotExist) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByIndex(p.index)
		if link.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		if err != nil {
			return err
		}
		return do(l)
	})
}

// outside is the entry to the host's link.
func (p *location) outside(do func(l netlink.Link) error) error {
	if p.segment == "" {
		return errors.New("no link of the host is known to lead to its segment")
	}
	l, err := netlink.LinkByName(p.segment)
	if err != nil {
		return err
	}
	return do(l)
}

// findSegment looks for the host's links that lead to the same segment as a container's: the master of a macvlan or an ipvlan, the other end
// of a veth and its bridge. The calling thread is in the container's namespace.
func (p *location) findSegment(l netlink.Link, host ns.NetNS) {
	id, err := netlink.GetNetNsIdByFd(int(host.Fd()))
	if err != nil || id < 0 || l.Attrs().NetNsID != id {
		return
	}
	_ = host.Do(func(ns.NetNS) error {
		outside, err := netlink.LinkByIndex(l.Attrs().ParentIndex)
		if err == nil && p.kind == "veth" {
			p.port = outside.Attrs().Name
			outside, err = netlink.LinkByIndex(outside.Attrs().MasterIndex)
		}
		if err == nil && (p.kind == "veth" || p.kind == "macvlan" || p.kind == "ipvlan") {
			p.segment = outside.Attrs().Name
		}
		return err
	})
}

// setUp sets the container's link up, and waits until packets pass it and its other end. One that does not let them is tried all the
// same.
func (p *location) setUp() error {
	err := p.enter(func(l netlink.Link) error {
		if l.Attrs().RawFlags&unix.IFF_UP == 0 {
			if err := link.WhenFree(unix.EADDRINUSE, func() error { return netlink.LinkSetUp(l) }); err != nil {
				return fmt.Errorf("set the container's interface up: %w", err)
			}
		}
		_, _ = link.WaitUp(&netlink.Handle{}, l.Attrs().Name)
		return nil
	})
	if p.port != "" {
		_, _ = link.WaitUp(&netlink.Handle{}, p.port)
	}
	return err
}

// isSame reports whether two places are the same.
func (p *location) isSame(other *location) bool {
	return p.inode == other.inode && (p.cookie == other.cookie || p.cookie == 0) && p.index == other.index
}

func (p *location) document() *conf.Object {
	o := conf.New()
	o.Set("inode", p.inode)
	o.Set("cookie", p.cookie)
	o.Set("index", p.index)
	o.Set("mac", p.mac.String())
	o.Set("kind", p.kind)
	o.Set("segment", p.segment)
	return o
}

func parseLocation(path string, o *conf.Object) (*location, error) {
	p, mac := &location{path: path}, ""
	o.Int("inode", &p.inode)
	o.Int("cookie", &p.cookie)
	o.Int("index", &p.index)
	o.String("mac", &mac)
	o.String("kind", &p.kind)
	o.String("segment", &p.segment)
	var err error
	p.mac, err = net.ParseMAC(mac)
	if err = errors.Join(err, o.Err()); err == nil && p.inode == 0 {
		err = errors.New("it does not say which namespace the container has")
	}
	return p, err
}
