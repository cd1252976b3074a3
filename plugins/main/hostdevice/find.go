package hostdevice

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// hardware is the kind of links that have none. The kernel puts those back to the host when their namespace ends.
const hardware = "device"

// findInside returns the device in the container, nil if it is not there. Where its number is not known it is the only link of its kind that
// its bus tells or, if it has none, that has its name as alias, or its MAC address. The container can set both.
func (n *note) findInside(r *plugin.Request) (l netlink.Link, err error) {
	if r.NS() == nil {
		return nil, nil
	}
	err = r.Inside(func() (err error) {
		if n.number != 0 {
			l, err = findNumber(&netlink.Handle{}, n.number, 20, n.IfName)
			return err
		}
		list, err := link.List(&netlink.Handle{})
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(l netlink.Link) bool { return !n.isLike(l) })
		if len(list) > 1 {
			return plugin.Errorf("move it back to the host by hand: `ip link set … netns 1 name "+n.name+"` inside the container",
				"several links of the container may be it")
		}
		if len(list) == 1 {
			l = list[0]
		}
		return nil
	})
	return l, err
}

// isLike reports whether a link of the container may be the device, whose number is not known.
func (n *note) isLike(l netlink.Link) bool {
	a := l.Attrs()
	isAlike := n.parent != "" || a.Alias == n.name || n.mac != "" && a.HardwareAddr.String() == n.mac
	return isAlike && l.Type() == n.kind && a.ParentDev == n.parent && a.Flags&net.FlagLoopback == 0
}

// findOnHost returns the device on the host if it is there, nil otherwise. Where its number is not known it is what has its name as alias,
// and a name that it can have: its own, the one in the container, or one that the kernel made. The container can set both.
func (n *note) findOnHost(r *plugin.Request, likely ...string) (netlink.Link, error) {
	if n.number != 0 {
		return findNumber(r.Links(), n.number, 2, append(likely, n.name, n.IfName)...)
	}
	list, err := link.List(r.Links())
	for _, l := range list {
		a := l.Attrs()
		isNamed := a.Alias == n.name && (a.Name == n.name || a.Name == n.IfName || strings.HasPrefix(a.Name, "dev"))
		if isNamed && l.Type() == n.kind && a.ParentDev == n.parent && a.Flags&net.FlagLoopback == 0 {
			return l, nil
		}
	}
	return nil, err
}

// isLocal reports whether a link was made in its namespace: lo, one of two veths that are there, or a link that is made on another there.
func isLocal(a *netlink.LinkAttrs) bool {
	return a.Flags&net.FlagLoopback != 0 || a.ParentIndex != 0 && a.NetNsID < 0
}

// findReferenceDevice describes what the reference plugin moved: the container's interface, whose alias is its name on the host. That is
// the container's own word. Only hardware can't be made by the container: another link must be the one that ADD has reported and that the
// configuration names, and not be on the host. A device that another attachment has a note of is that one's.
func findReferenceDevice(r *plugin.Request) (*note, error) {
	if r.NS() == nil {
		return nil, nil
	}
	var n *note
	var l netlink.Link
	err := r.Inside(func() (err error) {
		if l, err = netlink.LinkByName(r.IfName); err == nil {
			n, err = newNote(r, l)
		}
		return link.IgnoreNotFound(err)
	})
	if n == nil {
		return nil, err
	}
	n.name, n.alias, n.altNames, n.xdp, n.up = n.alias, "", "", 0, false // nothing else is known of its time on the host
	list, err := notes()
	if err != nil {
		return nil, err
	}
	isNoted := slices.ContainsFunc(list, func(other *note) bool { return n.isOfSameDevice(other) || n.name == other.name })
	device := ""
	r.Config.String("device", &device)
	_, missing := r.Links().LinkByName(device)
	switch {
	case isNoted:
		r.Announce("leave " + r.IfName + " in the container: another attachment has the device")
		return nil, nil
	case isLocal(l.Attrs()), r.PrevResult != nil && !attach.Reported(r, l):
		return nil, nil
	case n.kind == hardware && link.ValidateName(n.name) == nil, r.PrevResult != nil && n.name == device && link.IsNotFound(missing):
		return n, nil
	case n.kind == hardware && r.PrevResult != nil:
		return nil, plugin.Errorf("give it back by hand: `ip link set "+r.IfName+" netns 1 name …` inside the container",
			"%s has no alias that tells its name on the host", r.IfName)
	}
	return nil, nil
}

// mayBeElsewhere reports whether another namespace may have a device that neither the container nor the host has. It was deleted if the
// link that it needs is gone, or if the container's namespace knows no other: the kernel gives it a number for each that a link is moved to.
func (n *note) mayBeElsewhere(r *plugin.Request) (others bool, err error) {
	if n.needs != 0 {
		if isThere, err := n.hasWhatItNeeds(); err != nil || !isThere {
			return false, err
		}
	}
	if n.number == 0 { // it may have another name there
		return true, nil
	}
	host, err := ns.GetCurrentNS()
	if err != nil {
		return false, err
	}
	defer host.Close()
	err = r.Inside(func() error {
		own, err := netlink.GetNetNsIdByFd(int(host.Fd()))
		if err == nil {
			others, err = knowsOther(own)
		}
		return err
	})
	return others, err
}

// knowsOther reports whether the calling thread's namespace has numbers of others than the one that has this number.
func knowsOther(host int) (bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNSID, unix.NLM_F_DUMP)
	request.AddData(nl.NewRtGenMsg())
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
	for _, m := range messages {
		attrs, err := nl.ParseRouteAttrAsMap(m[nl.NewRtGenMsg().Len():])
		if err != nil {
			return false, err
		}
		if id, ok := attrs[netlink.NETNSA_NSID]; ok && int(int32(nl.NativeEndian().Uint32(id.Value))) != host {
			return true, nil
		}
	}
	return false, err
}

// hasWhatItNeeds reports whether the other end of the veth pair, or the link that the device is made on, is where it was at ADD.
func (n *note) hasWhatItNeeds() (bool, error) {
	request, message := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK), nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(n.needs)
	request.AddData(message)
	if n.needsIn >= 0 {
		request.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(n.needsIn))))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if link.IsNotFound(err) || errors.Is(err, unix.EINVAL) { // EINVAL is no such namespace
		return false, nil
	}
	return err == nil, err
}
