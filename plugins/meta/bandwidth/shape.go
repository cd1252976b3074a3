package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ingressHandle is the handle of the qdisc that filters what a link receives.
var ingressHandle = netlink.MakeHandle(0xffff, 0)

// apply sets the limits of a host end. The kernel delays what a link sends, not what it receives. So what the host end receives is sent
// through an ifb (intermediate functional block). It is returned, nil if none is needed.
func (c *config) apply(h *netlink.Handle, k plugin.Key, end netlink.Link, undo *plugin.Undo) (*netlink.Ifb, error) {
	index, name := end.Attrs().Index, end.Attrs().Name
	if c.ingress.rate > 0 {
		tbf := c.tbf(c.ingress, index)
		if err := addTBF(h, tbf, name); err != nil {
			return nil, err
		}
		undo.Push("stop limiting what "+name+" sends", func(context.Context) error { return h.QdiscDel(tbf) })
	}
	if c.egress.rate == 0 {
		return nil, nil
	}
	ifb, err := makeIFB(h, k, end.Attrs().MTU)
	if err != nil {
		return nil, err
	}
	undo.Push("delete "+ifb.Name, func(context.Context) error { return link.Delete(h, ifb.Index) })
	if err := addTBF(h, c.tbf(c.egress, ifb.Index), ifb.Name); err != nil {
		return nil, err
	}
	filters := filtersOf(end)
	if err := lacking(h.QdiscAdd(filters), "filter what "+name+" receives", ingressQdisc); err != nil {
		return nil, err
	}
	undo.Push("stop filtering what "+name+" receives", func(context.Context) error { return h.QdiscDel(filters) })
	return ifb, sendThrough(h, end, ifb)
}

// filtersOf returns the qdisc that filters what a link receives.
func filtersOf(l netlink.Link) netlink.Qdisc {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: ingressHandle, Parent: netlink.HANDLE_INGRESS}}
}

// sendThrough has what a link receives sent through an ifb. A filter of u32 that has nothing to match takes everything. Not all kernels have
// matchall.
func sendThrough(h *netlink.Handle, end, ifb netlink.Link) error {
	err := h.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: end.Attrs().Index, Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)},
	})
	return lacking(err, "send what "+end.Attrs().Name+" receives through "+ifb.Attrs().Name, filterToIFB)
}

// hostEnd returns the veth of this host that the previous result names and whose other end is in the container.
func hostEnd(r *plugin.Request) (netlink.Link, error) {
	end, err := attach.ReportedHostEnd(r)
	if end == nil && err == nil {
		err = plugin.ConfigError("bandwidth limits veth pairs: chain it behind a plugin that makes one, such as bridge or ptp",
			"%s in the container has no veth peer on this host that prevResult names", r.IfName)
	}
	return end, err
}

// addTBF limits what a link sends.
func addTBF(h *netlink.Handle, tbf *netlink.Tbf, name string) error {
	return lacking(h.QdiscAdd(tbf), "limit what "+name+" sends", tokenBucket)
}

// The features that the limits need of the kernel.
var (
	tokenBucket  = plugin.MissingFeature{Name: "token bucket filter", Module: "sch_tbf", Option: "CONFIG_NET_SCH_TBF"}
	ifbLinks     = plugin.MissingFeature{Name: "ifb links", Module: "ifb", Option: "CONFIG_IFB"}
	ingressQdisc = plugin.MissingFeature{Name: "ingress qdisc", Module: "sch_ingress", Option: "CONFIG_NET_SCH_INGRESS"}
	filterToIFB  = plugin.MissingFeature{Name: "u32 filter or mirred action", Module: "cls_u32, act_mirred", Option: "CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED"}
)

// lacking adds to an error what was to be done, and says what the kernel lacks if it is about that.
func lacking(err error, doing string, needed plugin.MissingFeature) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		needed.Err, needed.Instead = err, "leave the limit out"
		err = &needed
	case errors.Is(err, unix.EEXIST):
		return plugin.Errorf("call DEL before a second ADD; if others limit that link, leave it to them", "%s: it has a qdisc already", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// checkKernel reports what the kernel lacks for the limits. It asks for what no kernel makes: a filter that lets nothing pass, and an ifb
// with the MAC address of a group. A kernel that has them refuses the values, another one the kind.
func (c *config) checkKernel(h *netlink.Handle) error {
	const loopback = 1
	filter := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: loopback, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}}
	ifb := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: ifbName(""), HardwareAddr: net.HardwareAddr{1, 0, 0, 0, 0, 0}}}
	errs := []error{addTBF(h, filter, "a link")}
	if c.egress.rate > 0 {
		errs = append(errs, lacking(h.LinkAdd(ifb), "make an ifb", ifbLinks))
	}
	for _, err := range errs {
		if plugin.IsMissingFeature(err) {
			return err
		}
	}
	return nil
}
