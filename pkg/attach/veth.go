package attach

import (
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

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

// CheckHostEnd compares the other end of the container's veth with the result of ADD, and returns it.
func CheckHostEnd(r *plugin.Request, inside netlink.Link) (netlink.Link, error) {
	end, err := r.Links().LinkByIndex(inside.Attrs().ParentIndex)
	if err != nil {
		return nil, Different("the other end of %s is not on this host: %v", r.IfName, err)
	}
	name := end.Attrs().Name
	leads, err := LeadsTo(end, inside, r.NS())
	if err != nil {
		return nil, err
	}
	if !leads {
		return nil, Different("%s, a %s, is not the other end of %s", name, end.Type(), r.IfName)
	}
	if end.Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, Different("veth %s, the other end of %s, is down", name, r.IfName)
	}
	at := slices.IndexFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool { return f.Name == name && f.Sandbox == "" })
	if at < 0 {
		return nil, Different("veth %s, the other end of %s, is not in prevResult", name, r.IfName)
	}
	return end, CheckMAC(r.PrevResult.Interfaces[at], end)
}
