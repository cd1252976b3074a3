package hostdevice

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// moveIn moves a device into the container, under the request's interface name. Its alias there is its name on the host, as with the
// reference plugin. If it fails the device is back.
func moveIn(r *plugin.Request, l netlink.Link) error {
	n, err := newNote(r, l)
	if err == nil {
		err = n.write()
	}
	if err != nil {
		return fmt.Errorf("note that the container has %s: %w", n.name, err)
	}
	err = link.Move(l.Attrs().Index, r.NS(), r.IfName, n.name)
	if link.IsNotFound(err) {
		return errors.Join(plugin.CodeErrorf(types.ErrTryAgainLater, "repeat the call: it says which container has it", "%s has just left the host", n.name), state.Remove(n.path))
	}
	if err != nil {
		err = plugin.Errorf("links such as lo and bridges stay in their namespace, and the name, and alternative names, must be free in the container",
			"move %s into the container as %s: %w", n.name, r.IfName, err)
		if left, _ := r.Links().LinkByIndex(l.Attrs().Index); left != nil && left.Attrs().Name == n.name { // it was not moved
			return errors.Join(err, state.Remove(n.path))
		}
		return errors.Join(err, n.giveBack(r))
	}
	if err := n.claim(); err != nil {
		return errors.Join(err, n.giveBack(r))
	}
	return nil
}

// giveAddresses gives a device addresses that it had before it was moved. The kernel makes those of scope link.
func giveAddresses(links *netlink.Handle, name string, addresses []netlink.Addr) error {
	l, err := links.LinkByName(name)
	if err != nil {
		return link.IgnoreNotFound(err) // giveBack has said why it is not there
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
