package bandwidth

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Repair implements plugin.Repairer.
func (Plugin) Repair(_ context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil || c.isEmpty() {
		return err
	}
	end, err := hostEnd(r)
	if err == nil {
		err = c.fits(end)
	}
	if err != nil {
		return err
	}
	var errs []error
	if c.ingress.rate > 0 {
		errs = append(errs, c.repairTBF(r, c.ingress, end))
	}
	if c.egress.rate > 0 {
		ifb, err := repairIFB(r, end)
		if err == nil {
			err = c.repairTBF(r, c.egress, ifb)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// repairTBF limits what a link sends, unless that is done, whatever queues it instead.
func (c *config) repairTBF(r *plugin.Request, want limit, l netlink.Link) error {
	if c.checkTBF(want, l) == nil {
		return nil
	}
	r.Announce("limit what " + l.Attrs().Name + " sends")
	return lacking(r.Links().QdiscReplace(c.tbf(want, l.Attrs().Index)), "limit what "+l.Attrs().Name+" sends", tokenBucket)
}

// repairIFB returns the ifb that what the host end receives is sent through, when that is so again.
func repairIFB(r *plugin.Request, end netlink.Link) (netlink.Link, error) {
	h, name := r.Links(), end.Attrs().Name
	ifb, err := usedIFB(r, end)
	if err == nil {
		return ifb, nil
	}
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
