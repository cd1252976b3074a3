package bandwidth

import (
	"context"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Check compares the limits that the kernel has with the configuration.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, err := wanted(r)
	if err != nil || c.isEmpty() {
		return err
	}
	end, err := hostEnd(r)
	if err != nil {
		return err
	}
	qdiscs, err := link.Qdiscs(r.Links())
	if err == nil && c.ingress.rate > 0 {
		err = c.checkTBF(qdiscs, c.ingress, end)
	}
	if err != nil || c.egress.rate == 0 {
		return err
	}
	ifb, err := usedIFB(r, end)
	if err != nil {
		return err
	}
	return c.checkTBF(qdiscs, c.egress, ifb)
}

// usedIFB returns the attachment's ifb that what the host end receives is sent through.
func usedIFB(r *plugin.Request, end netlink.Link) (netlink.Link, error) {
	ifbs, err := findIFBs(r)
	if err != nil {
		return nil, err
	}
	to, err := targetsOf(r.Links(), end.Attrs().Index)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(ifbs, func(l netlink.Link) bool { return slices.Contains(to, l.Attrs().Index) })
	if at < 0 {
		return nil, different("what %s receives is not sent through an ifb of the attachment", end.Attrs().Name)
	}
	if ifbs[at].Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, different("ifb %s is down", ifbs[at].Attrs().Name)
	}
	return ifbs[at], nil
}

// checkTBF compares what limits what a link sends.
func (c *config) checkTBF(qdiscs []netlink.Qdisc, want limit, l netlink.Link) error {
	name, index := l.Attrs().Name, l.Attrs().Index
	for _, q := range qdiscs {
		is, ok := q.(*netlink.Tbf)
		if !ok || is.LinkIndex != index || is.Parent != netlink.HANDLE_ROOT {
			continue
		}
		if !c.isTBF(is, want) {
			tbf := c.tbf(want, index)
			return different("%s sends %d bytes a second with a burst of %d ticks and a queue of %d bytes, and it should be %d, %d and %d",
				name, is.Rate, is.Buffer, is.Limit, tbf.Rate, tbf.Buffer, tbf.Limit)
		}
		return nil
	}
	return different("nothing limits what %s sends", name)
}

func different(format string, args ...any) error {
	return plugin.Errorf(attach.Repair, format, args...)
}
