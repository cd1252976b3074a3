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
		if err := c.checkTBF(qdiscs, c.ingress, end); err != nil {
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
	return c.checkTBF(qdiscs, c.egress, ifb)
}

// checkTBF compares what limits what a link sends.
func (c *config) checkTBF(qdiscs []netlink.Qdisc, want limit, l netlink.Link) error {
	name, index := l.Attrs().Name, l.Attrs().Index
	at := slices.IndexFunc(qdiscs, func(q netlink.Qdisc) bool {
		return q.Attrs().LinkIndex == index && q.Attrs().Parent == netlink.HANDLE_ROOT
	})
	if at < 0 {
		return different("nothing limits what %s sends", name)
	}
	is, ok := qdiscs[at].(*netlink.Tbf)
	if !ok {
		return different("what %s sends is queued by %s, not limited by tbf", name, qdiscs[at].Type())
	}
	if !c.isTBF(is, want) {
		tbf := c.tbf(want, index)
		return different("%s sends %d bytes a second with a burst of %d ticks and a queue of %d bytes, and it should be %d, %d and %d",
			name, is.Rate, is.Buffer, is.Limit, tbf.Rate, tbf.Buffer, tbf.Limit)
	}
	return nil
}

func different(format string, args ...any) error {
	return plugin.Errorf(attach.Repair, format, args...)
}
