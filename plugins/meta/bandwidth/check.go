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
	if err != nil {
		return err
	}
	if c.ingress.rate > 0 {
		if err := checkTBF(qdiscs, c.tbf(c.ingress, end.Attrs().Index), end); err != nil {
			return err
		}
	}
	if c.egress.rate == 0 {
		return nil
	}
	return c.checkEgress(r, qdiscs, end)
}

// checkEgress looks whether what the host end receives goes through an ifb of the attachment, and is limited there.
func (c *config) checkEgress(r *plugin.Request, qdiscs []netlink.Qdisc, end netlink.Link) error {
	ifbs, err := findIFBs(r)
	if err != nil {
		return err
	}
	to, err := targetsOf(r.Links(), end.Attrs().Index)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ifbs, func(l netlink.Link) bool { return slices.Contains(to, l.Attrs().Index) })
	if at < 0 {
		return different("what %s receives is not sent through an ifb of the attachment", end.Attrs().Name)
	}
	ifb := ifbs[at]
	if ifb.Attrs().RawFlags&unix.IFF_UP == 0 {
		return different("ifb %s is down", ifb.Attrs().Name)
	}
	return checkTBF(qdiscs, c.tbf(c.egress, ifb.Attrs().Index), ifb)
}

// checkTBF compares what limits what a link sends.
func checkTBF(qdiscs []netlink.Qdisc, want *netlink.Tbf, l netlink.Link) error {
	name := l.Attrs().Name
	at := slices.IndexFunc(qdiscs, func(q netlink.Qdisc) bool {
		return q.Attrs().LinkIndex == want.LinkIndex && q.Attrs().Parent == netlink.HANDLE_ROOT
	})
	if at < 0 {
		return different("nothing limits what %s sends", name)
	}
	is, ok := qdiscs[at].(*netlink.Tbf)
	switch {
	case !ok:
		return different("what %s sends is queued by %s, not limited by tbf", name, qdiscs[at].Type())
	case is.Rate != want.Rate:
		return different("%s sends %d bytes a second at most, not %d", name, is.Rate, want.Rate)
	case is.Buffer != want.Buffer:
		return different("%s sends a burst of %d ticks at most, not %d", name, is.Buffer, want.Buffer)
	case is.Limit != want.Limit:
		return different("%s queues %d bytes at most, not %d", name, is.Limit, want.Limit)
	}
	return nil
}

func different(format string, args ...any) error {
	return plugin.Errorf(attach.Repair, format, args...)
}
