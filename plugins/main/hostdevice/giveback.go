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
	"github.com/cnibox/cnibox/pkg/state"
)

// giveBack moves the attachment's device to the host, as it was there before.
func giveBack(r *plugin.Request) error {
	n, err := noteOf(r.Key)
	if n == nil && err == nil {
		n, err = findReferenceDevice(r)
	}
	if n == nil {
		return err
	}
	return n.giveBack(r)
}

func (n *note) giveBack(r *plugin.Request) error {
	if r.Netns == "" { // GC, or a runtime that does not say it: the note does
		own := *r
		own.Pair = netns.NewPair(n.netns, false)
		defer own.Close()
		r = &own
	}
	if err := r.Unclear(); err != nil {
		return fmt.Errorf("give %s back to the host: %w", n.name, err)
	}
	l, err := n.fetch(r)
	switch {
	case err != nil:
	case l != nil:
		err = n.restore(r, l)
	case n.kind == hardware && !n.isOwn(r.NS()):
		return nil // the note stays for GC: the kernel puts the device back some time
	}
	if err != nil {
		return fmt.Errorf("give %s back to the host: %w", n.name, err)
	}
	return state.Remove(n.path)
}

// fetch returns the device on the host, to which it is moved from the container. It returns nil if there is no such device any more.
func (n *note) fetch(r *plugin.Request) (netlink.Link, error) {
	l, err := n.findInside(r)
	if err != nil {
		return nil, err
	}
	if l != nil {
		return n.moveBack(r, l)
	}
	// The kernel puts hardware back to the host a moment after its namespace has ended, and deletes the rest with that.
	const longest, pause = time.Second, 10 * time.Millisecond
	isThere := n.isOwn(r.NS())
	l, err = n.findOnHost(r)
	for end := time.Now().Add(longest); l == nil && err == nil && !isThere && n.kind == hardware && time.Now().Before(end); time.Sleep(pause) {
		l, err = n.findOnHost(r)
	}
	if l != nil || err != nil || !isThere {
		return l, err
	}
	hidden, err := n.mayBeElsewhere(r)
	if hidden {
		err = plugin.Errorf("move it back to the host by hand, or end the container; if it was deleted, remove "+n.path,
			"the container has it no more, and may have given it to another network namespace")
	}
	return nil, err
}

// moveBack moves a device to the host, without what the container has added to it. If another link has its name there by now, it gets a
// free one, and keeps its own as alias.
func (n *note) moveBack(r *plugin.Request, l netlink.Link) (netlink.Link, error) {
	name, err := freeName(r.Links(), n.name, l.Attrs().Index)
	if err != nil {
		return nil, err
	}
	host, err := ns.GetCurrentNS()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	err = r.Inside(func() error {
		inside := &netlink.Handle{}
		_ = dropNames(inside, l) // the host's links may have them; what is left is removed on the host, or in the way
		if err := deleteUppers(inside, l); err != nil {
			return err
		}
		return link.Move(l.Attrs().Index, host, name, n.name)
	})
	if err != nil {
		return nil, err
	}
	moved, err := n.findOnHost(r, name)
	if moved == nil && err == nil {
		err = plugin.Errorf("repeat the call", "the container has put another link in its place")
		if other, _ := r.Links().LinkByName(name); other != nil {
			err = errors.Join(err, link.Move(other.Attrs().Index, r.NS(), "dev%d", ""))
		}
	}
	return moved, err
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

// dropNames removes alternative names from a device, but those to keep. Linux 5.10 leaves a name where it was given as the device moves
// on: nobody finds the device by that here, and the kernel says that it is not there.
func dropNames(links *netlink.Handle, l netlink.Link, except ...string) error {
	var errs []error
	for _, name := range l.Attrs().AltNames {
		if !slices.Contains(except, name) {
			if err := links.LinkDelAltName(l, name); !errors.Is(err, unix.ENOENT) {
				errs = append(errs, err)
			}
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

// restore gives the device, which is on the host, what it had there: its name, and nothing that the container gave it. Anything else that can't be
// given back is said, since the device can be used. The alias is the last to be restored: until then it is the device's name.
func (n *note) restore(r *plugin.Request, l netlink.Link) error {
	links, a := r.Links(), l.Attrs()
	if err := errors.Join(dropNames(links, l, strings.Fields(n.altNames)...), n.dropProgram(l)); err != nil {
		return err
	}
	name, alias := a.Name, n.alias
	if a.Name != n.name {
		free, err := freeName(links, n.name, a.Index)
		if free != n.name {
			alias = n.name // which is another's by now
		}
		if err == nil && (free == n.name || !strings.HasPrefix(a.Name, "dev")) {
			name = free
			err = errors.Join(links.LinkSetDown(l), links.LinkSetName(l, name))
		}
		if err != nil {
			return err
		}
	}
	if mac, err := net.ParseMAC(n.mac); err == nil && !slices.Equal(mac, a.HardwareAddr) {
		n.warn(r, "its MAC address", links.LinkSetHardwareAddr(l, mac))
	}
	n.warn(r, "its MTU", links.LinkSetMTU(l, n.mtu))
	n.warn(r, "its flags, group, link mode, and limits of queue, GSO and GRO", link.Change(a.Index, uint32(n.flags), settable, n.attributes()...))
	n.warn(r, "its offloads", setOffloads(name, n.offloads))
	for _, name := range strings.Fields(n.altNames) {
		if !slices.Contains(a.AltNames, name) {
			n.warn(r, "its name "+name, links.LinkAddAltName(l, name))
		}
	}
	if n.up {
		n.warn(r, "that it is up", links.LinkSetUp(l))
	}
	return links.LinkSetAlias(l, alias)
}

// attributes are the numbers of a device as they are set.
func (n *note) attributes() (list []nl.NetlinkRequestData) {
	for i, number := range numbers {
		value := nl.Uint32Attr(uint32(n.numbers[i]))
		if number.kind == unix.IFLA_LINKMODE {
			value = nl.Uint8Attr(uint8(n.numbers[i]))
		}
		if n.numbers[i] != 0 || !number.isLimit {
			list = append(list, nl.NewRtAttr(int(number.kind), value))
		}
	}
	return list
}

// warn says what could not be restored.
func (n *note) warn(r *plugin.Request, what string, err error) {
	if err != nil {
		r.WarnOf(fmt.Errorf("%s is back on the host, without %s as before: %w", n.name, what, err))
	}
}

// dropProgram removes an XDP program that the device did not have at ADD: it comes along with the device. If there are several the kernel
// tells no id.
func (n *note) dropProgram(l netlink.Link) error {
	if x := l.Attrs().Xdp; x == nil || !x.Attached || n.xdp != 0 && programOf(l) == n.xdp {
		return nil
	}
	err := netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_DRV_MODE)
	if errors.Is(err, unix.EOPNOTSUPP) { // the driver takes none
		err = nil
	}
	return errors.Join(err, netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_SKB_MODE))
}
