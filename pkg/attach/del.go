package attach

import (
	"context"
	"errors"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/process/delegate"
	"github.com/cnibox/cnibox/pkg/process/detach"
)

// InContainer has the DEL and GC of a plugin whose link is the container's alone: it goes with its namespace.
type InContainer struct{}

// Del deletes the container's link, if it is the attachment's, and gives back its addresses.
func (InContainer) Del(ctx context.Context, r *plugin.Request) error {
	if r.NS() != nil {
		detach.Start(r)
	}
	d := BeginDel(ctx, r, Locate(r.Config))
	return d.End(ctx, deleteOwn(r))
}

// GC gives back the addresses of attachments that are not valid.
func (InContainer) GC(ctx context.Context, r *plugin.Request) error {
	return GC(ctx, r, Locate(r.Config))
}

// Removal is one DEL on its way: BeginDel, then what deletes the link, then End.
type Removal struct {
	request *plugin.Request
	ipam    *delegate.Delegate // nil if nothing is left to give back
	err     error
}

// BeginDel gives back the addresses if IPAM needs the link for that.
func BeginDel(ctx context.Context, r *plugin.Request, c *Config) *Removal {
	d := &Removal{request: r}
	d.ipam, d.err = findReleaser(r, c)
	if d.ipam != nil && d.ipam.ReleasesThroughLink {
		d.release(ctx)
	}
	r.Announce("link")
	return d
}

// End gives back the addresses, when nothing points at them any more: not if the link could not be deleted, for the reason that it is
// given. It returns all that went wrong.
func (d *Removal) End(ctx context.Context, link error) error {
	if d.ipam != nil && link == nil {
		d.release(ctx)
	}
	err := errors.Join(d.err, link)
	if err == nil {
		_ = presence.DefaultNotes.Remove(d.request.Key) // one that is left says that the attachment is gone
	}
	return err
}

func (d *Removal) release(ctx context.Context) {
	d.request.Announce("ipam")
	d.err = errors.Join(d.err, d.ipam.Del(ctx, d.request))
	d.ipam = nil
}

// findReleaser returns the IPAM plugin that gives back addresses, nil if there is none. If the configuration has a
// section ipam without a type, it may have had one when ADD was called: host-local then, which needs nothing but the key.
func findReleaser(r *plugin.Request, c *Config) (*delegate.Delegate, error) {
	if c.IPAM == "" && r.Config.Has("ipam") {
		return delegate.HostLocal(r), nil
	}
	return findIPAM(r, c)
}

// deleteOwn deletes the container's link: one with the attachment's index, whatever its name is by now, or else the one with its name. It
// looks at the second closely only, since a container can have links that nobody can read.
func deleteOwn(r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	inside, err := r.LinksInside()
	if err != nil {
		return err
	}
	index := r.LinkIndex()
	if _, err := inside.LinkByIndex(index); link.IsNotFound(err) {
		l, err := inside.LinkByName(r.IfName)
		if err != nil || !IsOwn(r, l) {
			return nil
		}
		index = l.Attrs().Index
	}
	return detach.DeleteInside(r, index)
}

// IsOwn reports whether the container's link is the attachment's: the path of the namespace may be another container's by now. It has the
// index that was made for it, or the attachment's host end as its other end. One that has neither is what ADD reported, if the runtime
// says that: with the MAC address of then, or another of those given. A loopback is nobody's, whatever its container calls it.
// A link that is not the attachment's is left alone, and the trace says so.
func IsOwn(r *plugin.Request, l netlink.Link, macs ...string) bool {
	own := isOwn(r, l, macs)
	if !own {
		r.Announce("leave " + r.IfName + " alone: it is not this attachment's")
	}
	return own
}

func isOwn(r *plugin.Request, l netlink.Link, macs []string) bool {
	end, err := otherEnd(r, l)
	switch {
	case l.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 || err != nil:
		return false
	case l.Attrs().Index >= plugin.FirstLinkIndex:
		return l.Attrs().Index == r.LinkIndex()
	case end != nil && IsHostEnd(end):
		return owns(end, r.Key)
	case r.PrevResult == nil:
		return true
	}
	for _, f := range r.PrevResult.Interfaces {
		if f.Name != r.IfName || f.Sandbox == "" {
			continue
		}
		has := func(mac string) bool { return strings.EqualFold(mac, l.Attrs().HardwareAddr.String()) }
		return netns.Same(f.Sandbox, r.Netns) && (f.Mac == "" || slices.ContainsFunc(append(macs, f.Mac), has))
	}
	return true
}

// Reported reports whether the previous result names a link as the container's.
func Reported(r *plugin.Request, l netlink.Link) bool {
	return r.PrevResult != nil && slices.ContainsFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool {
		return f.Name == l.Attrs().Name && f.Sandbox != "" && strings.EqualFold(f.Mac, l.Attrs().HardwareAddr.String())
	})
}

// GC has stores, and the IPAM plugin, let go of what is held for the network's attachments that are not valid.
func GC(ctx context.Context, r *plugin.Request, c *Config, stores ...plugin.Store) error {
	err := held.GC(ctx, r, stores...)
	ipam, missing := findReleaser(r, c)
	if ipam != nil {
		err = errors.Join(err, ipam.GC(ctx, r))
	}
	if err = errors.Join(err, missing); err != nil {
		return err
	}
	return held.GC(ctx, r, presence.DefaultNotes)
}
