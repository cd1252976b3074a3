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

// isOwn reports whether a namespace, if there is one, can be the one that the device was moved to.
func (h *holding) isOwn(n ns.NetNS) bool {
	return n != nil && (h.inode == 0 || h.inode == inodeOf(n))
}

// findInside returns the device in the container, nil if it is not there.
func (h *holding) findInside(r *plugin.Request) (netlink.Link, error) {
	if r.NS() == nil {
		return nil, nil
	}
	inside, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	fs, err := openSysfsInside(r)
	if err != nil && h.number != 0 {
		return nil, err
	}
	defer fs.Close()
	if h.number == 0 {
		return h.guess(inside, fs)
	}
	return fs.find(inside, h.number, 20, r.IfName)
}

func openSysfsInside(r *plugin.Request) (fs *sysfs, err error) {
	err = r.Inside(func() (err error) {
		fs, err = openSysfs()
		return err
	})
	return fs, err
}

// guess is findInside where the device's number is not known. If it is hardware its bus tells, and otherwise the alias that ADD gave it, or
// its MAC address, though the container can set both.
func (h *holding) guess(inside *netlink.Handle, fs *sysfs) (netlink.Link, error) {
	links, err := link.List(inside)
	if err != nil {
		return nil, err
	}
	var found netlink.Link
	for _, l := range links {
		a := l.Attrs()
		isAlike := h.parent != "" || a.Alias == h.name || a.HardwareAddr.String() == h.mac && h.mac != ""
		if isLocal(a) || l.Type() != h.kind || a.ParentDev != h.parent || !isAlike {
			continue
		}
		if found != nil {
			return nil, plugin.Errorf("move it back to the host by hand: `ip link set … netns 1 name "+h.name+"` inside the container",
				"the container has several links that may be it")
		}
		found = l
		h.number = fs.number(a.Name)
	}
	return found, nil
}

// isLocal reports whether a link was made in its namespace: lo, one of two veths that are there, or a link that is made on another there.
func isLocal(a *netlink.LinkAttrs) bool {
	return a.Flags&net.FlagLoopback != 0 || a.ParentIndex != 0 && a.NetNsID < 0
}

// findUnnoted returns what the reference plugin moved: the container's interface, whose alias is its name on the host. That is the
// container's own word. Only hardware can't be made by the container: another link must be the one that ADD has reported and that the
// configuration names, and not be on the host. Nothing is without a note of which another attachment has one.
func findUnnoted(r *plugin.Request) (*holding, error) {
	if r.NS() == nil {
		return nil, nil
	}
	inside, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	l, err := inside.LinkByName(r.IfName)
	if err != nil {
		return nil, link.IgnoreNotFound(err)
	}
	fs, _ := openSysfsInside(r)
	defer fs.Close()
	a, device := l.Attrs(), ""
	h := &holding{Key: r.Key, number: fs.number(a.Name), name: a.Alias, kind: l.Type()}
	list, err := holdings()
	if err != nil {
		return nil, err
	}
	isNoted := slices.ContainsFunc(list, func(o *holding) bool { return h.isOf(o) || o.name == h.name })
	r.Config.String("device", &device)
	_, missing := r.Links().LinkByName(device)
	switch {
	case isLocal(a), isNoted, r.PrevResult != nil && !attach.Reported(r, l):
		return nil, nil
	case h.kind == hardware && link.ValidateName(h.name) == nil, r.PrevResult != nil && h.name == device && link.IsNotFound(missing):
		return h, nil
	case h.kind == hardware && r.PrevResult != nil:
		return nil, plugin.Errorf("give it back by hand: `ip link set "+r.IfName+" netns 1 name …` inside the container",
			"%s has no alias that tells its name on the host", r.IfName)
	}
	return nil, nil
}

// findOnHost returns the device on the host if it is there, nil otherwise. Where its number is not known it is what has its name as alias,
// and a name that it can have there: its own, the one in the container, or one that the kernel made.
func (h *holding) findOnHost(r *plugin.Request, likely ...string) (netlink.Link, error) {
	if h.number != 0 {
		fs, err := openSysfs()
		if err != nil {
			return nil, err
		}
		defer fs.Close()
		return fs.find(r.Links(), h.number, 2, append(likely, h.name, h.IfName)...)
	}
	list, err := link.List(r.Links())
	for _, l := range list {
		a := l.Attrs()
		hasName := a.Name == h.name || a.Name == h.IfName || strings.HasPrefix(a.Name, "dev")
		if a.Alias == h.name && l.Type() == h.kind && hasName {
			return l, nil
		}
	}
	return nil, err
}

// mayBeElsewhere reports whether another namespace may have a device that neither the container nor the host has. It was deleted if the
// link that it needs is gone, or if the container's namespace knows no other: the kernel gives it a number for each that a link is moved to.
func (h *holding) mayBeElsewhere(r *plugin.Request) (bool, error) {
	host, err := ns.GetCurrentNS()
	if err != nil {
		return false, err
	}
	defer host.Close()
	others := false
	err = r.Inside(func() error {
		own, err := netlink.GetNetNsIdByFd(int(host.Fd()))
		if err == nil {
			others, err = knowsOther(own)
		}
		return err
	})
	if err != nil || !others || h.needs == 0 {
		return others, err
	}
	return h.hasWhatItNeeds()
}

// knowsOther reports whether the calling thread's namespace has numbers of others than the one that has this number.
func knowsOther(host int) (bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNSID, unix.NLM_F_DUMP)
	request.AddData(nl.NewRtGenMsg())
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
	for _, m := range messages {
		attrs, err := nl.ParseRouteAttr(m[nl.NewRtGenMsg().Len():])
		if err != nil {
			return false, err
		}
		for _, a := range attrs {
			if a.Attr.Type == netlink.NETNSA_NSID && int(int32(nl.NativeEndian().Uint32(a.Value))) != host {
				return true, nil
			}
		}
	}
	return false, err
}

// hasWhatItNeeds reports whether the other end of the veth pair, or the link that the device is made on, is where it was at ADD.
func (h *holding) hasWhatItNeeds() (bool, error) {
	request, message := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK), nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(h.needs)
	request.AddData(message)
	if h.needsIn >= 0 {
		request.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(h.needsIn))))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if link.IsNotFound(err) || errors.Is(err, unix.EINVAL) { // EINVAL is no such namespace
		return false, nil
	}
	return err == nil, err
}
