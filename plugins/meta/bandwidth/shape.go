package bandwidth

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
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
	filters := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: ingressHandle, Parent: netlink.HANDLE_INGRESS}}
	if err := lacking(h.QdiscAdd(filters), "filter what "+name+" receives", "ingress qdisc", "CONFIG_NET_SCH_INGRESS"); err != nil {
		return nil, err
	}
	undo.Push("stop filtering what "+name+" receives", func(context.Context) error { return h.QdiscDel(filters) })
	// A filter of u32 that has nothing to match takes everything. Not all kernels have matchall.
	err = h.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(ifb.Index)},
	})
	return ifb, lacking(err, "send what "+name+" receives through "+ifb.Name, "u32 filter or mirred action",
		"CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED")
}

// addTBF limits what a link sends.
func addTBF(h *netlink.Handle, tbf *netlink.Tbf, name string) error {
	return lacking(h.QdiscAdd(tbf), "limit what "+name+" sends", "token bucket filter", "CONFIG_NET_SCH_TBF")
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
		return plugin.Errorf("call DEL before a second ADD; if others limit that link, leave it to them", "%s: it has a qdisc already", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// targets returns the indexes of the links that others send through as apply has it.
func targets(h *netlink.Handle) (map[int]bool, error) {
	qdiscs, err := link.Qdiscs(h)
	to := map[int]bool{}
	for _, q := range qdiscs {
		if q.Type() != "ingress" || err != nil {
			continue
		}
		var list []int
		list, err = targetsOf(h, q.Attrs().LinkIndex)
		for _, index := range list {
			to[index] = true
		}
	}
	return to, err
}

// targetsOf returns the indexes of the links that what one link receives is sent through.
func targetsOf(h *netlink.Handle, linkIndex int) (to []int, err error) {
	filters, err := link.Filters(h, linkIndex, ingressHandle)
	for _, f := range filters {
		if u32, ok := f.(*netlink.U32); ok && u32.RedirIndex != 0 {
			to = append(to, u32.RedirIndex)
		}
	}
	return to, link.IgnoreNotFound(err)
}

// hostEnd returns the host end of the container's veth pair.
func hostEnd(r *plugin.Request) (netlink.Link, error) {
	const remedy = "bandwidth limits veth pairs: chain it behind a plugin that makes one, such as bridge or ptp"
	links, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	inside, err := links.LinkByName(r.IfName)
	if err != nil {
		return nil, plugin.Errorf(remedy, "look up %s in the container: %v", r.IfName, err)
	}
	var outside netlink.Link
	leads := false
	if inside.Type() == "veth" {
		if outside, err = r.Links().LinkByIndex(inside.Attrs().ParentIndex); err == nil {
			leads, err = attach.LeadsTo(outside, inside, r.NS())
		}
	}
	if link.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if !leads {
		return nil, plugin.Errorf(remedy, "container interface %s, a %s, has no veth peer on this host", r.IfName, inside.Type())
	}
	return outside, nil
}

const (
	namePrefix  = "bwp"     // starts the name of every ifb, as with the reference plugin
	aliasPrefix = "cnibox " // starts the alias of every ifb; what follows is the key
)

// names are the names that the attachment's ifb can have. The first is the reference plugin's, so that each plugin deletes what the
// other one made. All interfaces of a container on one network have the same there, so others than the first take the second.
func names(k plugin.Key) [2]string {
	return [2]string{ifbName(k.Network + k.ContainerID), ifbName(k.Network + "/" + k.ContainerID + "/" + k.IfName)}
}

func ifbName(owner string) string {
	hash := sha512.Sum512([]byte(owner))
	return namePrefix + hex.EncodeToString(hash[:6])
}

func alias(k plugin.Key) string { return aliasPrefix + k.String() }

// isOurs reports whether a link is the ifb that was made here for the key: it has the key as its alias or, if that ADD was killed before
// it set one, the MAC address.
func isOurs(l netlink.Link, k plugin.Key) bool {
	mac, attrs := k.MAC("ifb"), l.Attrs()
	return l.Type() == "ifb" && (attrs.Alias == alias(k) || attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, mac[:]))
}

// makeIFB makes the attachment's ifb, and sets it up.
func makeIFB(h *netlink.Handle, k plugin.Key, mtu int) (*netlink.Ifb, error) {
	mac := k.MAC("ifb")
	for _, name := range names(k) {
		ifb := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac[:], MTU: mtu}}
		err := h.LinkAdd(ifb)
		if errors.Is(err, unix.EEXIST) {
			if l, err := h.LinkByName(name); err == nil && isOurs(l, k) {
				return nil, plugin.Errorf("call DEL before a second ADD", "the bandwidth of %s is limited already (ifb %s)", k, name)
			}
			continue
		}
		if err != nil {
			return nil, lacking(err, "make ifb "+name, "ifb links", "CONFIG_IFB")
		}
		if err := link.SetUpAs(ifb.Index, alias(k), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("set up %s: %w", name, err), link.Delete(h, ifb.Index))
		}
		return ifb, nil
	}
	return nil, plugin.Errorf("delete them if nobody uses them", "the links %q are others'", names(k))
}

// findIFBs returns the attachment's ifbs: the one that was made here, and one without an alias that has the reference plugin's name,
// unless the previous result is known not to have it.
func findIFBs(r *plugin.Request) (ifbs []netlink.Link, err error) {
	for i, name := range names(r.Key) {
		l, err := r.Links().LinkByName(name)
		if link.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", name, err)
		}
		isReference := i == 0 && l.Type() == "ifb" && l.Attrs().Alias == "" && mayHave(r.PrevResult, name)
		if isReference || isOurs(l, r.Key) {
			ifbs = append(ifbs, l)
		}
	}
	return ifbs, nil
}

func mayHave(result *types100.Result, name string) bool {
	return result == nil || slices.ContainsFunc(result.Interfaces, func(f *types100.Interface) bool {
		return f.Name == name && f.Sandbox == ""
	})
}

// staleIFBs returns the indexes of the ifbs whose attachments of the request's network are not valid. Those without an alias are the
// reference plugin's, or of an ADD that was killed, and say nothing of their owner: they are stale if nothing is sent into them.
func staleIFBs(r *plugin.Request) (stale []int, err error) {
	valid := map[string]bool{}
	for _, k := range r.ValidKeys() {
		valid[alias(k)] = true
	}
	links, err := link.List(r.Links())
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var used map[int]bool
	for _, l := range links {
		a := l.Attrs()
		switch {
		case l.Type() != "ifb" || !strings.HasPrefix(a.Name, namePrefix) || len(a.Name) != len(ifbName("")):
		case a.Alias != "":
			if strings.HasPrefix(a.Alias, aliasPrefix+r.Network+"/") && !valid[a.Alias] {
				stale = append(stale, a.Index)
			}
		default:
			if used == nil {
				if used, err = targets(r.Links()); err != nil {
					return stale, err
				}
			}
			if !used[a.Index] {
				stale = append(stale, a.Index)
			}
		}
	}
	return stale, nil
}
