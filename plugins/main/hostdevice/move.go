package hostdevice

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
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

// giveBack moves the attachment's device to the host, as it was there before. A device that is not found is with the host already, or
// gone with the container.
func giveBack(r *plugin.Request) error {
	h, err := holdingOf(r.Key)
	if err != nil {
		return err
	}
	var l netlink.Link
	if r.NS() != nil {
		if h, l, err = find(r, h); err != nil {
			return err
		}
	}
	if h == nil {
		return nil
	}
	if l != nil {
		err = moveOut(r, h, l)
	}
	if err == nil {
		err = h.restore(r.Links())
	}
	if err != nil {
		return fmt.Errorf("give %s back to the host: %w", h.name, err)
	}
	return h.remove()
}

// find returns the attachment's device in the container, nil if it is not there. It may have another name by now.
func find(r *plugin.Request, h *holding) (*holding, netlink.Link, error) {
	inside, err := r.LinksInside()
	if err != nil {
		return h, nil, err
	}
	if h == nil {
		return findUnnoted(r, inside)
	}
	links, err := link.List(inside)
	if err != nil {
		return h, nil, err
	}
	for _, isIt := range []func(a *netlink.LinkAttrs) bool{
		func(a *netlink.LinkAttrs) bool { return a.Alias == h.name },
		func(a *netlink.LinkAttrs) bool { return a.HardwareAddr.String() == h.mac && h.mac != "" },
	} {
		at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Type() == h.kind && isIt(l.Attrs()) })
		if at >= 0 {
			return h, links[at], nil
		}
	}
	return h, nil, nil
}

// findUnnoted returns the device that the reference plugin moved: the container's interface, whose alias is its name on the host. That
// is the container's own word. Only hardware can't be made by the container: another link must be the one that ADD has reported and
// that the configuration names, and not be on the host.
func findUnnoted(r *plugin.Request, inside *netlink.Handle) (*holding, netlink.Link, error) {
	l, err := inside.LinkByName(r.IfName)
	if err != nil {
		return nil, nil, link.IgnoreNotFound(err)
	}
	device, h := "", &holding{Key: r.Key, name: l.Attrs().Alias, kind: l.Type()}
	r.Config.String("device", &device)
	_, missing := r.Links().LinkByName(device)
	isHardware := h.kind == (&netlink.Device{}).Type()
	switch {
	case r.PrevResult != nil && !attach.Reported(r, l):
		return nil, nil, nil
	case isHardware && link.IsName(h.name), r.PrevResult != nil && h.name == device && link.IsNotFound(missing):
		return h, l, nil
	case isHardware && r.PrevResult != nil:
		return nil, nil, plugin.Errorf("give it back by hand: `ip link set "+r.IfName+" netns 1 name …` inside the container",
			"%s has no alias that tells its name on the host", r.IfName)
	}
	return nil, nil, nil
}

// moveOut moves a device to the host. If another link has its name there by now, it gets a free one, and keeps its own as alias.
func moveOut(r *plugin.Request, h *holding, l netlink.Link) error {
	name, err := freeName(r.Links(), h.name, l.Attrs().Index)
	if err != nil {
		return err
	}
	host, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer host.Close()
	return r.Inside(func() error {
		if err := dropTakenNames(r.Links(), l); err != nil {
			return err
		}
		return link.Move(l.Attrs().Index, host, name, h.name)
	})
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

// dropTakenNames removes alternative names that links of the host have: with one of them the device could not be moved there, and the
// container may have given it that.
func dropTakenNames(h *netlink.Handle, l netlink.Link) error {
	var errs []error
	for _, name := range l.Attrs().AltNames {
		if _, err := h.LinkByName(name); err == nil {
			errs = append(errs, netlink.LinkDelAltName(l, name))
		}
	}
	return errors.Join(errs...)
}

// restore sets what the device had on the host, where it is again, and has its name as alias: the last to be restored, it says that
// the rest is to be. If the container's namespace ended before DEL, the kernel has moved the device, under the name that it had there
// or one that begins with "dev".
func (h *holding) restore(links *netlink.Handle) error {
	l, err := h.findBack(links)
	if l == nil {
		return err
	}
	a, alias := l.Attrs(), h.alias
	var errs []error
	if a.Name != h.name {
		_, err := links.LinkByName(h.name)
		switch {
		case err == nil:
			alias = h.name // which is another's by now
		case link.IsNotFound(err):
			err = links.LinkSetName(l, h.name)
		}
		errs = append(errs, err)
	}
	if mac, err := net.ParseMAC(h.mac); err == nil && !slices.Equal(mac, a.HardwareAddr) {
		errs = append(errs, links.LinkSetHardwareAddr(l, mac))
	}
	if h.mtu != 0 && h.mtu != a.MTU {
		errs = append(errs, links.LinkSetMTU(l, h.mtu))
	}
	if h.up {
		errs = append(errs, links.LinkSetUp(l))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return links.LinkSetAlias(l, alias)
}

// findBack returns the device on the host if it came back and was not restored, nil otherwise.
func (h *holding) findBack(links *netlink.Handle) (netlink.Link, error) {
	list, err := link.List(links)
	for _, l := range list {
		a := l.Attrs()
		hasName := a.Name == h.name || a.Name == h.IfName || strings.HasPrefix(a.Name, "dev")
		if a.Alias == h.name && l.Type() == h.kind && hasName {
			return l, nil
		}
	}
	return nil, err
}
