package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Removal is how a plugin removes what it made.
type Removal struct {
	// Filter, if there is one, removes what the packet filter has.
	Filter func(ctx context.Context) error
	// Link, if there is one, removes the link. Otherwise the container's is deleted, if it is the attachment's.
	Link func() error
}

// Del removes what the packet filter has, then the link, and gives back the addresses last, when nothing points at them any more;
// first only where IPAM needs the link for that. It tries all of it, except that an address is kept as long as its link is there.
func Del(ctx context.Context, r *plugin.Request, c *Config, remove Removal) error {
	var errs []error
	if remove.Filter != nil {
		r.Announce("packet filter")
		errs = append(errs, remove.Filter(ctx))
	}
	ipam, err := findReleaser(r, c)
	errs = append(errs, err)
	early := ipam != nil && ipam.ReleasesThroughLink
	if early {
		errs = append(errs, release(ctx, r, ipam))
	}
	r.Announce("link")
	if remove.Link == nil {
		remove.Link = func() error { return deleteOwn(r) }
	}
	err = remove.Link()
	errs = append(errs, err)
	if ipam != nil && !early && err == nil {
		errs = append(errs, release(ctx, r, ipam))
	}
	return errors.Join(errs...)
}

// findReleaser returns the IPAM plugin that gives back addresses, nil if there is none. A section ipam that does not tell which one
// that is may have done so for ADD. Then it is host-local, which knows its leases by the attachment alone.
func findReleaser(r *plugin.Request, c *Config) (*delegate.Delegate, error) {
	if c.IPAM == "" && r.Config.Has("ipam") {
		return delegate.HostLocal(r), nil
	}
	return findIPAM(r, c)
}

func release(ctx context.Context, r *plugin.Request, ipam *delegate.Delegate) error {
	r.Announce("ipam")
	return ipam.Del(ctx, r)
}

// deleteOwn deletes the container's link: one with the attachment's index, whatever its name is by now, or else the one with its name. It
// looks at the second only, since a container can have links that nobody can read.
func deleteOwn(r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	inside, err := r.LinksInside()
	if err != nil {
		return err
	}
	err = inside.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: r.LinkIndex()}})
	switch {
	case err == nil:
		return nil
	case !link.IsNotFound(err):
		return fmt.Errorf("delete link %d: %w", r.LinkIndex(), err)
	}
	l, err := inside.LinkByName(r.IfName)
	if err != nil || !IsOwn(r, l) {
		return nil
	}
	return link.Delete(inside, l.Attrs().Index)
}

// IsOwn reports whether the container's link is the attachment's: the path of the namespace may be another container's by now. It has the
// index that was made for it, or the attachment's host end as its other end. One that has neither is what ADD reported, if the runtime
// says that: with the MAC address of then, or another of those given. A loopback is nobody's, whatever its container calls it.
func IsOwn(r *plugin.Request, l netlink.Link, macs ...string) bool {
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
		return f.Sandbox == r.Netns && (f.Mac == "" || slices.ContainsFunc(append(macs, f.Mac), has))
	}
	return true
}

// Reported reports whether the previous result names a link as the container's.
func Reported(r *plugin.Request, l netlink.Link) bool {
	return r.PrevResult != nil && slices.ContainsFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool {
		return f.Name == l.Attrs().Name && f.Sandbox != "" && strings.EqualFold(f.Mac, l.Attrs().HardwareAddr.String())
	})
}

// GC removes the host ends and leases of the network's attachments that are not valid.
func GC(ctx context.Context, r *plugin.Request, c *Config) error {
	err := collectHostEnds(r)
	ipam, missing := findReleaser(r, c)
	if ipam == nil {
		return errors.Join(err, missing)
	}
	return errors.Join(err, ipam.GC(ctx, r))
}
