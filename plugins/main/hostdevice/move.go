package hostdevice

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// take moves a device into the container, under the request's interface name. Its alias there is its name on the host, as with the
// reference plugin. If it fails the device may have been moved all the same.
func take(r *plugin.Request, l netlink.Link) error {
	h := newHolding(r, l)
	if err := h.write(); err != nil {
		return fmt.Errorf("note that the container has %s: %w", h.name, err)
	}
	if err := link.Move(l.Attrs().Index, r.NS(), r.IfName, h.name); err != nil {
		return plugin.Errorf("links such as lo and bridges stay in their namespace, and the name, and alternative names, must be free in the container",
			"move %s into the container as %s: %v", h.name, r.IfName, err)
	}
	return h.claim()
}

// giveAddresses gives a device addresses that it had before it was moved. The kernel makes those of scope link.
func giveAddresses(links *netlink.Handle, name string, addresses []netlink.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	l, err := links.LinkByName(name)
	if err != nil {
		return err
	}
	has, err := link.Addresses(links, l, netlink.FAMILY_ALL)
	errs := []error{err}
	for _, a := range addresses {
		if a.Scope != unix.RT_SCOPE_LINK && !slices.ContainsFunc(has, a.Equal) {
			errs = append(errs, links.AddrReplace(l, &a))
		}
	}
	return errors.Join(errs...)
}

// giveBack moves the attachment's device to the host, as it was there before.
func giveBack(r *plugin.Request) error {
	h, err := holdingOf(r.Key)
	switch {
	case err != nil:
		return err
	case h == nil:
		if h, err = findUnnoted(r); h == nil {
			return err
		}
	case r.Netns == "": // where the runtime does not say it, the note does
		return h.collect(r)
	}
	return h.giveBack(r)
}

// collect is giveBack in the namespace that the device was moved to.
func (h *holding) collect(r *plugin.Request) error {
	stale := &plugin.Request{Command: plugin.Del, Key: h.Key, Netns: h.netns, Config: r.Config, Trace: r.Trace, Warn: r.Warn, Pair: netns.NewPair("", false)}
	defer stale.Close()
	n, err := netns.Open(h.netns)
	switch {
	case err == nil:
		defer n.Close()
		own, err := netns.IsOwn(n)
		if err != nil {
			return err
		}
		if !own {
			stale.Pair = netns.PairWith(n)
		}
	case !errors.Is(err, netns.ErrNotExist):
		return err
	}
	return h.giveBack(stale)
}

func (h *holding) giveBack(r *plugin.Request) error {
	l, err := h.fetch(r)
	switch {
	case err != nil:
	case l != nil:
		err = h.restore(r, l)
	case h.kind == hardware && !h.isOwn(r.NS()):
		return nil // the note stays for GC: the kernel puts the device back some time
	}
	if err != nil {
		return fmt.Errorf("give %s back to the host: %w", h.name, err)
	}
	return h.remove()
}

// fetch returns the device on the host, to which it is moved from the container. It returns nil if there is no such device any more.
func (h *holding) fetch(r *plugin.Request) (netlink.Link, error) {
	l, err := h.findInside(r)
	if err != nil {
		return nil, err
	}
	if l != nil {
		return h.moveOut(r, l)
	}
	if l, err = h.findOnHost(r); l != nil || err != nil {
		return l, err
	}
	if !h.isOwn(r.NS()) {
		return h.await(r)
	}
	hidden, err := h.mayBeElsewhere(r)
	if hidden {
		err = plugin.Errorf("move it back to the host by hand, or end the container; if it was deleted, remove "+pathOf(h.Key),
			"the container has it no more, and may have given it to another network namespace")
	}
	return nil, err
}

// await waits for a device of a namespace that has ended: the kernel puts hardware back to the host a moment later, and deletes the rest.
func (h *holding) await(r *plugin.Request) (l netlink.Link, err error) {
	const longest, pause = time.Second, 10 * time.Millisecond
	for end := time.Now().Add(longest); h.kind == hardware && l == nil && err == nil && time.Now().Before(end); time.Sleep(pause) {
		l, err = h.findOnHost(r)
	}
	return l, err
}

// moveOut moves a device to the host, without what the container has added to it. If another link has its name there by now, it gets a
// free one, and keeps its own as alias.
func (h *holding) moveOut(r *plugin.Request, l netlink.Link) (netlink.Link, error) {
	name, err := freeName(r.Links(), h.name, l.Attrs().Index)
	if err != nil {
		return nil, err
	}
	host, err := ns.GetCurrentNS()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	inside, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	_ = h.dropNames(r, inside, l) // what is left is removed on the host, or in the way
	if err := deleteUppers(inside, l); err != nil {
		return nil, err
	}
	if err := r.Inside(func() error { return link.Move(l.Attrs().Index, host, name, h.name) }); err != nil {
		return nil, err
	}
	back, err := h.findOnHost(r, name)
	if back == nil && err == nil {
		err = plugin.Errorf("repeat the call", "the container has put another link in its place")
		if other, _ := r.Links().LinkByName(name); other != nil {
			err = errors.Join(err, link.Move(other.Attrs().Index, r.NS(), "dev%d", ""))
		}
	}
	return back, err
}

// freeName returns a name if no link of the host has it, and otherwise one as the kernel gives it to devices of namespaces that end.
func freeName(h *netlink.Handle, name string, index int) (string, error) {
	for ; ; index++ {
		_, err := h.LinkByName(name)
		if link.IsNotFound(err) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		name = fmt.Sprint("dev", index)
	}
}

// dropNames removes the alternative names that the device did not have at ADD, and those that the host's links have by now.
func (h *holding) dropNames(r *plugin.Request, links *netlink.Handle, l netlink.Link) error {
	var errs []error
	for _, name := range l.Attrs().AltNames {
		other, _ := r.Links().LinkByName(name)
		if !slices.Contains(strings.Fields(h.altNames), name) || links != r.Links() && other != nil {
			errs = append(errs, links.LinkDelAltName(l, name))
		}
	}
	return errors.Join(errs...)
}

// deleteUppers deletes the links that the container has made on the device, such as macvlans: they would go on to use it on the host.
func deleteUppers(inside *netlink.Handle, l netlink.Link) error {
	links, err := link.List(inside)
	if err != nil {
		return err
	}
	var uppers []int
	for _, other := range links {
		a := other.Attrs()
		isOtherEnd := isLocal(l.Attrs()) && a.Index == l.Attrs().ParentIndex
		if isLocal(a) && a.ParentIndex == l.Attrs().Index && !isOtherEnd {
			uppers = append(uppers, a.Index)
		}
	}
	return link.DeleteAll(inside, uppers)
}

// restore gives the device, which is on the host, what it had there: its name, and nothing that the container gave it. What else can't be
// given back is told, since the device can be used. The alias is the last to be restored: until then it is the device's name.
func (h *holding) restore(r *plugin.Request, l netlink.Link) error {
	links, a := r.Links(), l.Attrs()
	if err := errors.Join(h.dropNames(r, links, l), h.dropProgram(l)); err != nil {
		return err
	}
	alias := h.alias
	if a.Name != h.name {
		name, err := freeName(links, h.name, a.Index)
		if name != h.name {
			alias = h.name // which is another's by now
		}
		if err == nil && (name == h.name || !strings.HasPrefix(a.Name, "dev")) {
			err = errors.Join(links.LinkSetDown(l), links.LinkSetName(l, name))
		}
		if err != nil {
			return err
		}
	}
	if mac, err := net.ParseMAC(h.mac); err == nil && !slices.Equal(mac, a.HardwareAddr) {
		h.tell(r, "its MAC address", links.LinkSetHardwareAddr(l, mac))
	}
	if h.mtu != 0 && h.mtu != a.MTU {
		h.tell(r, "its MTU", links.LinkSetMTU(l, h.mtu))
	}
	if flags := int(a.RawFlags & settable); h.inode != 0 && (flags != h.flags || a.TxQLen != h.queue || int(a.Group) != h.group) {
		h.tell(r, "its flags, queue length and group", h.setFlags(l))
	}
	for _, name := range strings.Fields(h.altNames) {
		if !slices.Contains(a.AltNames, name) {
			h.tell(r, "its name "+name, links.LinkAddAltName(l, name))
		}
	}
	if h.up {
		h.tell(r, "that it is up", links.LinkSetUp(l))
	}
	return links.LinkSetAlias(l, alias)
}

// tell tells people what could not be restored.
func (h *holding) tell(r *plugin.Request, what string, err error) {
	if err != nil && r.Warn != nil {
		r.Warn(fmt.Sprintf("%s is back on the host, without %s as before: %v", h.name, what, err))
	}
}

// setFlags gives the device its flags, queue length and group back.
func (h *holding) setFlags(l netlink.Link) error {
	request, message := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK), nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index, message.Flags, message.Change = int32(l.Attrs().Index), uint32(h.flags), settable
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(h.queue))))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(uint32(h.group))))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// dropProgram removes an XDP program that the device did not have at ADD: it comes along with the device.
func (h *holding) dropProgram(l netlink.Link) error {
	if a := l.Attrs(); a.Xdp == nil || !a.Xdp.Attached || programOf(a) == h.xdp && h.xdp != 0 {
		return nil
	}
	err := netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_DRV_MODE)
	if errors.Is(err, unix.EOPNOTSUPP) { // the driver takes none
		err = nil
	}
	return errors.Join(err, netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_SKB_MODE))
}
