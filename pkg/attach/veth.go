package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// hostMAC returns the MAC address of the attachment's host end. It is higher than others, because a bridge whose own address nobody
// has set takes the lowest of its ports.
func hostMAC(k plugin.Key) net.HardwareAddr {
	mac := k.MAC("host end")
	mac[0] = 0xfe // locally administered, unicast
	return mac
}

// MakeVeth makes a veth pair: the container's end, which is down, and a host end that is named from the key, a port of a master
// unless that is 0, and up. It returns the host end.
func (a *Attachment) MakeVeth(ctx context.Context, master int) (netlink.Link, error) {
	if err := a.Step(ctx, "link"); err != nil {
		return nil, err
	}
	for salt := range plugin.HostEnds {
		name := a.Key.HostEnd(salt)
		veth, err := a.makeVeth(name, master)
		if err == nil {
			return veth, a.Made(a.DeleteLink)
		}
		if !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		l, err := a.Links().LinkByName(name)
		switch {
		case link.IsNotFound(err): // so it was the other end's name
			return nil, plugin.Errorf("give the attachment another CNI_IFNAME, or remove that interface", "the container already has an interface %s", a.IfName)
		case err != nil:
			return nil, err
		case owns(l, a.Key):
			return nil, plugin.Errorf("call DEL before a second ADD",
				"container %s is already attached to network %s as %s (host end %s)", a.ContainerID, a.Network, a.IfName, name)
		}
	}
	return nil, plugin.Errorf("remove stale links: see `ip link show type veth`", "all %d names for the host end are taken", plugin.HostEnds)
}

// makeVeth makes the pair under a name, whole or not at all. Both MAC addresses are set, so that udev leaves them alone
// (systemd.link(5), MACAddressPolicy). One queue is asked for in so many words: otherwise the kernel makes one for each CPU.
func (a *Attachment) makeVeth(name string, master int) (netlink.Link, error) {
	const usualQueue = 1000 // packets: the kernel's; the host end has no queue, as with the reference plugins
	mtu := cmp.Or(a.MTU, usualMTU)
	attrs := netlink.LinkAttrs{Name: name, HardwareAddr: hostMAC(a.Key), MTU: mtu, TxQLen: 0, NumTxQueues: 1, NumRxQueues: 1}
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: a.IfName, PeerHardwareAddr: a.ContainerMAC(), PeerNamespace: netlink.NsFd(int(a.NS().Fd())),
		PeerTxQLen: usualQueue, PeerMTU: uint32(mtu), PeerNumTxQueues: 1, PeerNumRxQueues: 1,
	}
	err := a.Links().LinkAdd(veth)
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil, err
	case err == nil:
		err = link.SetUpHostEnd(veth.Index, held.Alias(a.Key), master)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create veth %s: %w", name, err), deleteHostEnd(a.Request)) // it may be there all the same
	}
	return veth, nil
}

// owns reports whether a link with one of the key's names is the host end of its attachment. An ADD that was killed leaves one
// without an alias.
func owns(l netlink.Link, k plugin.Key) bool {
	attrs := l.Attrs()
	return l.Type() == "veth" && (held.OwnerOf(l) == k.String() || attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, hostMAC(k)))
}

// HostEnd returns the host end of the request's attachment, nil if there is none.
func HostEnd(r *plugin.Request) (netlink.Link, error) {
	for salt := range plugin.HostEnds {
		l, err := r.Links().LinkByName(r.HostEnd(salt))
		switch {
		case link.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("look up %s: %w", r.HostEnd(salt), err)
		case owns(l, r.Key):
			return l, nil
		}
	}
	return nil, nil
}

// deleteHostEnd deletes the attachment's host end, if there is one.
func deleteHostEnd(r *plugin.Request) error {
	l, err := HostEnd(r)
	if l == nil {
		return err
	}
	return link.Delete(r.Links(), l.Attrs().Index)
}

// FindHostEnd returns the host end to delete, nil if there is none, and whether it is certain whose it is. If the key leads to none the
// container may still have a veth that the reference plugin made. Its host end has a random name and is found from the container's side.
// The namespace's path may be another container's by now: a pair that ADD has not reported has to look like one of the reference plugin's.
func FindHostEnd(r *plugin.Request) (end netlink.Link, certain bool, err error) {
	end, err = HostEnd(r)
	if end != nil || err != nil || r.NS() == nil {
		return end, true, err
	}
	links, err := r.LinksInside()
	if err != nil {
		return nil, false, err
	}
	inside, err := links.LinkByName(r.IfName)
	if err != nil { // it is not there, or such that nobody can read it
		return nil, false, nil
	}
	end, err = otherEnd(r, inside)
	if end == nil || IsHostEnd(end) {
		return nil, false, err
	}
	return end, Reported(r, inside), nil
}

// ReportedHostEnd returns the veth of this host that the previous result names and whose other end is in the container, nil if there is none.
// Nothing is asked in there: names and indexes are what the container makes of them.
func ReportedHostEnd(r *plugin.Request) (netlink.Link, error) {
	for _, f := range r.PrevResult.Interfaces {
		if f.Sandbox != "" || f.Name == "" {
			continue
		}
		l, err := r.Links().LinkByName(f.Name)
		switch {
		case link.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("look up %s: %w", f.Name, err)
		}
		id, err := r.NetnsID()
		if err != nil || link.LeadsInto(l, id) {
			return l, err
		}
	}
	return nil, nil
}

// leadsTo reports whether a veth of the host has the container's link as its other end. The answer of the container's side is
// the container's own word: whoever has CAP_NET_ADMIN there makes a link whose peer has any index.
func leadsTo(r *plugin.Request, outside, inside netlink.Link) (bool, error) {
	id, err := r.NetnsID()
	return link.LeadsInto(outside, id) && inside.Type() == "veth" && outside.Attrs().ParentIndex == inside.Attrs().Index, err
}

// otherEnd returns the host's veth that has a container's link as its other end, nil if there is none.
func otherEnd(r *plugin.Request, inside netlink.Link) (netlink.Link, error) {
	if inside.Type() != "veth" || inside.Attrs().ParentIndex == 0 {
		return nil, nil
	}
	outside, err := r.Links().LinkByIndex(inside.Attrs().ParentIndex)
	if err != nil {
		return nil, link.IgnoreNotFound(err)
	}
	leads, err := leadsTo(r, outside, inside)
	if !leads {
		outside = nil
	}
	return outside, err
}

// usualMTU is the kernel's, in bytes.
const usualMTU = 1500

// MendHostEnd mends the other end of the container's veth, and returns it.
func (a *Attachment) MendHostEnd() (netlink.Link, error) {
	end, want, err := findReported(a.Request, a.link)
	if err != nil {
		return nil, a.mender.Lost(err)
	}
	if name := end.Attrs().Name; name != want.Name {
		back := fmt.Sprintf("`ip link set %[1]s down; ip link set %[1]s name %[2]s; ip link set %[2]s up; cnictl repair`", name, want.Name)
		a.mender.Fail(plugin.Errorf("the container works as it is; to rename it back: "+back, "veth %s, the other end of %s, was called %s by ADD", name, a.IfName, want.Name))
	}
	a.mendUp(a.Links(), end, "veth %s, the other end of %s, is down", want.Name, a.IfName)
	a.mendMAC(a.Links(), want, end)
	return end, nil
}

// MendHostMTU mends the MTU of a host end that MakeVeth has made: packets that are too large for it are dropped in silence.
func (a *Attachment) MendHostMTU(end netlink.Link) {
	name, mtu := end.Attrs().Name, cmp.Or(a.MTU, usualMTU)
	if end.Attrs().MTU < mtu {
		a.mender.Mend(Different("veth %s, the other end of %s, has MTU %d, configured is %d", name, a.IfName, end.Attrs().MTU, mtu),
			fmt.Sprintf("set the MTU of %s to %d", name, mtu), func() error { return a.Links().LinkSetMTU(end, mtu) })
	}
}

// findReported returns the other end of the container's veth, whatever its name is by now, and what the result of ADD says of it.
func findReported(r *plugin.Request, inside netlink.Link) (netlink.Link, *types100.Interface, error) {
	end, err := otherEnd(r, inside)
	switch {
	case err != nil:
		return nil, nil, err
	case end == nil:
		return nil, nil, Different("the other end of %s is not on this host", r.IfName)
	}
	name := end.Attrs().Name
	at := slices.IndexFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool {
		isRenamed := r.IsHostEnd(f.Name) && held.OwnerOf(end) == r.Key.String()
		return f.Sandbox == "" && (f.Name == name || isRenamed)
	})
	if at < 0 {
		return nil, nil, Different("veth %s, the other end of %s, is not in prevResult", name, r.IfName)
	}
	return end, r.PrevResult.Interfaces[at], nil
}

// IsHostEnd reports whether a link is an attachment's host end that was made here.
func IsHostEnd(l netlink.Link) bool { return held.OwnerOf(l) != "" }

// HostEnds are the host ends of all attachments.
func HostEnds(r *plugin.Request) plugin.Store { return held.Links{Kind: "veth", Host: r.Links()} }
