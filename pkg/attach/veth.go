package attach

import (
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/detach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// DelVeth deletes the attachment's veth pair. If there is none that is found by the key the container may still have one that the
// reference plugin made, if its host end looks like it.
func DelVeth(r *plugin.Request, isReference func(hostEnd netlink.Link) bool) error {
	end, err := HostEnd(r)
	if end == nil && err == nil && r.NS() != nil {
		end, err = foreignHostEnd(r, isReference)
	}
	if end == nil {
		return err
	}
	return detach.Delete(r, end.Attrs().Index)
}

// foreignHostEnd returns the host end of the reference plugin's veth pair, nil if there is none. It has a random name and is found
// from the container's side. The namespace's path may be another container's by now, so the pair must be what ADD reported, or else
// its host end must look like it.
func foreignHostEnd(r *plugin.Request, isReference func(hostEnd netlink.Link) bool) (netlink.Link, error) {
	links, err := r.LinksInside()
	if err != nil {
		return nil, err
	}
	inside, err := links.LinkByName(r.IfName)
	if err != nil { // it is not there, or such that nobody can read it
		return nil, nil
	}
	outside, err := otherEnd(r, inside)
	if outside == nil || IsHostEnd(outside) || !Reported(r, inside) && !isReference(outside) {
		return nil, err
	}
	return outside, nil
}

// CheckHostEnd compares the other end of the container's veth with the result of ADD, and returns it.
func CheckHostEnd(r *plugin.Request, inside netlink.Link) (netlink.Link, error) {
	end, err := r.Links().LinkByIndex(inside.Attrs().ParentIndex)
	if err != nil {
		return nil, different("the other end of %s is not on this host: %v", r.IfName, err)
	}
	name := end.Attrs().Name
	leads, err := LeadsTo(end, inside, r.NS())
	if err != nil {
		return nil, err
	}
	if !leads {
		return nil, different("%s, a %s, is not the other end of %s", name, end.Type(), r.IfName)
	}
	if end.Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, different("veth %s, the other end of %s, is down", name, r.IfName)
	}
	at := slices.IndexFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool { return f.Name == name && f.Sandbox == "" })
	if at < 0 {
		return nil, different("veth %s, the other end of %s, is not in prevResult", name, r.IfName)
	}
	return end, CheckMAC(r.PrevResult.Interfaces[at], end)
}
