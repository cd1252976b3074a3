package bandwidth

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ingressHandle is the handle that the kernel gives the qdisc of what a link receives.
var ingressHandle = netlink.MakeHandle(0xffff, 0)

// addTBF limits what a link sends.
func addTBF(h *netlink.Handle, tbf *netlink.Tbf, name string) error {
	return lacking(h.QdiscAdd(tbf), "limit what "+name+" sends", "token bucket filter", "CONFIG_NET_SCH_TBF")
}

// ingress returns the qdisc that holds the filters of what a link receives.
func ingress(linkIndex int) netlink.Qdisc {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: linkIndex, Handle: ingressHandle, Parent: netlink.HANDLE_INGRESS}}
}

// redirect has an ifb send all that a link receives. The filter is one of u32, without anything to match, as not all kernels have
// matchall.
func redirect(h *netlink.Handle, from, to netlink.Link) error {
	filter := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: from.Attrs().Index, Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	}
	what := fmt.Sprintf("have %s send what %s receives", to.Attrs().Name, from.Attrs().Name)
	return lacking(h.FilterAdd(filter), what, "u32 filter or no mirred action", "CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED")
}

// targets returns the indexes of the links that such filters lead to.
func targets(h *netlink.Handle) (map[int]bool, error) {
	qdiscs, err := link.Qdiscs(h)
	if err != nil {
		return nil, err
	}
	to := map[int]bool{}
	for _, q := range qdiscs {
		if q.Type() != "ingress" {
			continue
		}
		list, err := targetsOf(h, q.Attrs().LinkIndex)
		if err != nil {
			return nil, err
		}
		for _, index := range list {
			to[index] = true
		}
	}
	return to, nil
}

// targetsOf is targets for what one link receives.
func targetsOf(h *netlink.Handle, linkIndex int) (to []int, err error) {
	filters, err := link.Filters(h, linkIndex, ingressHandle)
	for _, f := range filters {
		if u32, ok := f.(*netlink.U32); ok && u32.RedirIndex != 0 {
			to = append(to, u32.RedirIndex)
		}
	}
	return to, link.IgnoreNotFound(err)
}

// lacking adds to an error what was to be done, and says what the kernel lacks if it is about that.
func lacking(err error, doing, what, option string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("%s: the kernel has no %s (%s)", doing, what, option),
			"load the module, or use a kernel that has it, or leave the limit out")
	case errors.Is(err, unix.EEXIST):
		return plugin.Errorf("call DEL before a second ADD; if others limit that link, leave it to them",
			"%s: it has a qdisc already", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// hostEnd returns the host end of the container's veth pair.
func hostEnd(r *plugin.Request) (netlink.Link, error) {
	links, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	inside, err := links.LinkByName(r.IfName)
	if err != nil {
		return nil, fmt.Errorf("look up %s in the container: %w", r.IfName, err)
	}
	none := plugin.Errorf("bandwidth limits veth pairs: chain it behind a plugin that makes one, such as bridge or ptp",
		"container interface %s, a %s, has no veth peer on this host", r.IfName, inside.Type())
	if inside.Type() != "veth" {
		return nil, none
	}
	outside, err := r.Links().LinkByIndex(inside.Attrs().ParentIndex)
	if link.IsNotFound(err) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	leads, err := attach.LeadsTo(outside, inside, r.NS())
	if err == nil && !leads {
		err = none
	}
	return outside, err
}
