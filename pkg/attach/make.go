package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Attrs returns what all links that are made for containers have in common. DEL knows the link by its index, which is the attachment's.
func (a *Attachment) Attrs() netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index, attrs.MTU = a.IfName, a.LinkIndex(), a.MTU
	return attrs
}

// MakeLink makes the container's link: by the host, if its attributes name the container's namespace, else in the container.
func (a *Attachment) MakeLink(ctx context.Context, l netlink.Link) error {
	if err := a.Step(ctx, "link"); err != nil {
		return err
	}
	links, err := a.LinksInside()
	if err != nil {
		return err
	}
	if l.Attrs().Namespace != nil {
		links = a.Links()
	}
	err = links.LinkAdd(l)
	if errors.Is(err, unix.EEXIST) && RefuseSecond(a.Request) == nil {
		err = link.WhenFree(unix.EEXIST, func() error { return links.LinkAdd(l) })
	}
	if err != nil {
		return a.explainMake(l, err)
	}
	return a.Made(a.DeleteLink)
}

// explainMake says what to do about an error of making a link in the container.
func (a *Attachment) explainMake(l netlink.Link, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.EEXIST):
		remedy = fmt.Sprintf("either the container already has an interface %s: give the attachment another CNI_IFNAME, or remove that interface; "+
			"or, of a vlan, the master already has that one, here or in another container", a.IfName)
	case errors.Is(err, unix.EOPNOTSUPP):
		return plugin.MissingLinkType(l.Type(), err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		remedy = "the master may be in use: a macvlan, an ipvlan and a bridge can't have the same, and a macvlan of mode passthru has it alone"
	}
	return plugin.Errorf(remedy, "make %s %s: %w", l.Type(), a.IfName, err)
}
