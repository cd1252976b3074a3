package attach

import (
	"context"
	"net"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/pkg/result"
)

// remedy is what to do about what is not as ADD has made it.
const remedy = "something changed the network after ADD: " + plugin.RepairRemedy

// Different returns the error of something that is other than ADD has made it.
func Different(format string, args ...any) error { return plugin.Errorf(remedy, format, args...) }

// BeginMend begins a Mend of an attachment whose link, of a kind, is in the container, with its lease. A kind of "" is any.
func BeginMend(ctx context.Context, r *plugin.Request, c *Config, kind string, m *plugin.Mender) (*Attachment, error) {
	want, l, err := find(r, kind)
	if err == nil && m.Repairs() && !IsOwn(r, l) {
		err = notOwn(r)
	}
	if err != nil {
		return nil, m.Lost(err)
	}
	a := &Attachment{Request: r, Config: c, Interface: want, link: l, mender: m, IPs: result.AddressesOf(r.PrevResult, r.IfName), Routes: r.PrevResult.Routes}
	if a.ipam, err = findIPAM(r, c); err != nil {
		return nil, err
	}
	if a.isLeased = a.ipam == nil; a.isLeased {
		return a, nil
	}
	// A DEL gives back the lease when it has deleted the link: so if the link is still there after the lease was missed, it was not a DEL that
	// took it.
	missed := request.Check(ctx, a.ipam.Plugin, r)
	if missed != nil && m.Repairs() && !a.isThere() {
		return nil, m.Lost(Different("interface %s of the container has just gone", r.IfName))
	}
	a.isLeased = m.Mend(missed, "", func() error {
		_, err := request.Repair(ctx, a.ipam.Plugin, r)
		return err
	})
	return a, nil
}

// isThere reports whether the container has the link still.
func (a *Attachment) isThere() bool {
	_, l, err := lookUp(a.Request)
	return err == nil && l.Attrs().Index == a.link.Attrs().Index
}

// find returns the container's link of a kind, and what the result of ADD says of it.
func find(r *plugin.Request, kind string) (want *types100.Interface, l netlink.Link, err error) {
	want = result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	if want == nil {
		return nil, nil, plugin.Errorf("the runtime must pass the result of this attachment's ADD, with the same CNI_NETNS and CNI_IFNAME",
			"prevResult has no interface %s in %s", r.IfName, r.Netns)
	}
	_, l, err = lookUp(r)
	switch {
	case err != nil:
		err = Different("interface %s is not in the container: %v", r.IfName, err)
	case kind != "" && l.Type() != kind:
		err = Different("interface %s of the container is not a %s but %s", r.IfName, kind, l.Type())
	}
	return want, l, err
}

func notOwn(r *plugin.Request) error {
	return Different("interface %s of the container is not the attachment's", r.IfName)
}

// CheckLost returns an error if the container does not have the link that ADD has reported, whatever has made it. A device that the kernel has
// no link of has no MAC address, and the loopback link is always there. One that was not made for this attachment is the reported one if it has
// its MAC address.
func CheckLost(r *plugin.Request, isBorrowed bool) error {
	want := result.ContainerInterface(r.PrevResult, r.IfName, r.Netns)
	if !isBorrowed && (want == nil || want.Mac == "" || want.Mac == "00:00:00:00:00:00") {
		return nil
	}
	_, l, err := find(r, "")
	switch {
	case err != nil:
		return plugin.Lost(err)
	case isBorrowed && want.Mac != "" && !Reported(r, l), !isBorrowed && !IsOwn(r, l):
		return plugin.Lost(notOwn(r))
	}
	return nil
}

// CheckLease makes sure that the lease is there.
func CheckLease(ctx context.Context, r *plugin.Request, c *Config) error {
	ipam, err := findIPAM(r, c)
	if err != nil || ipam == nil {
		return err
	}
	return request.Check(ctx, ipam.Plugin, r)
}

// Link returns the container's link.
func (a *Attachment) Link() netlink.Link { return a.link }

// Mend mends the container's link, with the addresses and routes that Configure has made.
func (a *Attachment) Mend(ctx context.Context) error { return a.mend(ctx, a.KernelRoutes(), 0) }

// MendWith is Mend of what ConfigureWith has made.
func (a *Attachment) MendWith(ctx context.Context, routes []netlink.Route) error {
	return a.mend(ctx, routes, unix.IFA_F_NOPREFIXROUTE)
}

func (a *Attachment) mend(ctx context.Context, routes []netlink.Route, addressFlags int) error {
	if a.HostSide {
		return nil
	}
	inside, err := a.LinksInside()
	if err != nil {
		return err
	}
	a.mendMAC(inside, a.Interface, a.link)
	if a.Down {
		return nil
	}
	a.mendUp(inside, a.link, "interface %s is down", a.IfName)
	if !a.isLeased { // the address of another container must not come back here
		return nil
	}
	has, err := a.mendAddresses(inside, addressFlags)
	if err != nil {
		return err
	}
	return a.mendRoutes(ctx, inside, routes, has, addressFlags)
}

// mendMAC compares a link's MAC address with what ADD has reported.
func (a *Attachment) mendMAC(h *netlink.Handle, want *types100.Interface, l netlink.Link) {
	is := l.Attrs().HardwareAddr.String()
	if want.Mac == "" || is == want.Mac {
		return
	}
	differs := Different("%s has the MAC address %s, ADD reported %s", want.Name, is, want.Mac)
	a.mender.Mend(differs, "give "+want.Name+" the MAC address "+want.Mac, func() error {
		mac, err := net.ParseMAC(want.Mac)
		if err != nil {
			return err
		}
		return withRemedy(h.LinkSetHardwareAddr(l, mac), want.Name)
	})
}

// mendUp sets a link up again.
func (a *Attachment) mendUp(h *netlink.Handle, l netlink.Link, down string, args ...any) {
	if l.Attrs().RawFlags&unix.IFF_UP == 0 {
		a.mender.Mend(Different(down, args...), "set "+l.Attrs().Name+" up", func() error { return withRemedy(h.LinkSetUp(l), l.Attrs().Name) })
	}
}

// mendAddresses adds those that are missing, and returns all that the link has then.
func (a *Attachment) mendAddresses(inside *netlink.Handle, flags int) ([]netlink.Addr, error) {
	if len(a.IPs) == 0 {
		return nil, nil
	}
	has, err := link.Addresses(inside, a.link, netlink.FAMILY_ALL)
	missing := slices.DeleteFunc(slices.Clone(a.IPs), func(ip *types100.IPConfig) bool { return hasAddress(has, ip) })
	if err != nil || len(missing) == 0 {
		return has, err
	}
	for _, ip := range missing {
		lacks := Different("interface %s lacks the address %s", a.IfName, result.Prefix(ip.Address))
		a.mender.Mend(lacks, "give "+a.IfName+" the address "+ip.Address.String(), func() error {
			err := a.addAddresses(inside, []*types100.IPConfig{ip}, flags)
			if err == nil && isIPv6(ip) && a.needsDAD() {
				err = a.Inside(a.waitForDAD)
			}
			return withRemedy(err, a.IfName)
		})
	}
	if a.mender.Repairs() {
		has, err = link.Addresses(inside, a.link, netlink.FAMILY_ALL)
	}
	return has, err
}

// MendMaster looks whether the link is made on its master. If none is named nothing says which was taken.
func (a *Attachment) MendMaster(m Master) error {
	if m.Name == "" || a.HostSide {
		return nil
	}
	m.MTU = 0 // it may have changed
	master, err := m.find(a.Request)
	if err != nil {
		return err
	}
	inContainer := a.link.Attrs().NetNsID < 0
	if a.link.Attrs().ParentIndex != master.Attrs().Index || inContainer != m.InContainer {
		a.mender.Fail(Different("%s is not made on %s", a.IfName, m.Name))
	}
	return nil
}
