package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Mend looks at the limits that the kernel has.
func (Plugin) Mend(_ context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r.Config)
	if err != nil || c.isEmpty() {
		return err
	}
	end, err := hostEnd(r)
	if err != nil {
		return err
	}
	if c.ingress.rate > 0 {
		c.mendTBF(r, c.ingress, end, end, m)
	}
	if c.egress.rate == 0 {
		return nil
	}
	ifb, err := usedIFB(r, end)
	isUsed := m.Mend(err, "", func() (err error) {
		ifb, err = c.repairIFB(r, end)
		return err
	})
	if isUsed {
		c.mendTBF(r, c.egress, ifb, end, m)
	}
	return nil
}

// mendTBF looks at what limits what a link sends. If something else queues it that is replaced.
func (c *config) mendTBF(r *plugin.Request, want limit, l, end netlink.Link, m *plugin.Mender) {
	name := l.Attrs().Name
	m.Mend(c.checkTBF(want, l), "", func() error {
		if err := c.fits(end); err != nil {
			return err
		}
		r.Announce("limit what " + name + " sends")
		return lacking(r.Links().QdiscReplace(c.tbf(want, l.Attrs().Index)), "limit what "+name+" sends", tokenBucket)
	})
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
		return nil, attach.Different("what %s receives is not sent through an ifb of the attachment", end.Attrs().Name)
	}
	if ifbs[at].Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, attach.Different("ifb %s is down", ifbs[at].Attrs().Name)
	}
	return ifbs[at], nil
}

// checkTBF compares what limits what a link sends.
func (c *config) checkTBF(want limit, l netlink.Link) error {
	name, index := l.Attrs().Name, l.Attrs().Index
	_, is, err := rootQdisc(index)
	switch {
	case err != nil:
		return fmt.Errorf("look up the qdisc of %s: %w", name, err)
	case is == nil:
		return attach.Different("nothing limits what %s sends", name)
	case !c.isTBF(is, want):
		tbf := c.tbf(want, index)
		return attach.Different("%s sends %d bytes a second with a burst of %d ticks and a queue of %d bytes, and it should be %d, %d and %d",
			name, is.Rate, is.Buffer, is.Limit, tbf.Rate, tbf.Buffer, tbf.Limit)
	case uint64(is.Buffer) < limit{is.Rate, largestPacket(l)}.ticks():
		return attach.Different("%s drops its largest packets: the burst of %d ticks has no room for %d bytes", name, is.Buffer, largestPacket(l))
	}
	return nil
}

// repairIFB returns the ifb that what the host end receives is sent through, when that is so again.
func (c *config) repairIFB(r *plugin.Request, end netlink.Link) (ifb netlink.Link, err error) {
	if err := c.fits(end); err != nil {
		return nil, err
	}
	h, name := r.Links(), end.Attrs().Name
	ifbs, err := findIFBs(r)
	switch {
	case err != nil:
		return nil, err
	case len(ifbs) > 0:
		ifb = ifbs[0]
	default:
		r.Announce("make an ifb for what " + name + " receives")
		if ifb, err = makeIFB(h, r.Key, end.Attrs().MTU); err != nil {
			return nil, err
		}
	}
	if len(ifbs) > 0 && ifb.Attrs().RawFlags&unix.IFF_UP == 0 {
		r.Announce("set " + ifb.Attrs().Name + " up")
		if err := h.LinkSetUp(ifb); err != nil {
			return nil, err
		}
	}
	if _, err := usedIFB(r, end); err == nil {
		return ifb, nil
	}
	r.Announce("send what " + name + " receives through " + ifb.Attrs().Name)
	if err := h.QdiscAdd(filtersOf(end)); !errors.Is(err, unix.EEXIST) {
		if err := lacking(err, "filter what "+name+" receives", ingressQdisc); err != nil {
			return nil, err
		}
	}
	filters, err := filtersOn(h, end.Attrs().Index)
	if err != nil {
		return nil, err
	}
	for _, f := range filters {
		if !leadsNowhere(f) {
			continue
		}
		if err := h.FilterDel(f); err != nil {
			return nil, fmt.Errorf("remove the filter that sends what %s receives through a link that is gone: %w", name, err)
		}
	}
	return ifb, sendThrough(h, end, ifb)
}
