package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The uplink between a Host and its Outside, from the ranges for documentation.
const (
	UplinkName = "uplink0"

	HostIPv4    = "192.0.2.1"
	HostIPv6    = "2001:db8:2::1"
	OutsideIPv4 = "192.0.2.254"
	OutsideIPv6 = "2001:db8:2::254"
)

// Outside is a machine on the other end of a Host's uplink. It has no route to any pod network, so it can answer a pod
// only when the Host masquerades it.
type Outside struct {
	Namespace
}

// NewOutside makes the Host's outside and the uplink to it, which becomes the Host's default route for IPv4 and IPv6. A
// Host has at most one.
func (h *Host) NewOutside(t testing.TB) *Outside {
	t.Helper()
	netns, err := newNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netns.Close() })
	o := &Outside{Namespace{name: "outside", netns: netns, node: h.node}}
	if err := o.connect(h); err != nil {
		t.Fatal("connect a host to its outside: ", err)
	}
	return o
}

// AddRoute gives the outside a route to a pod network through the Host.
func (o *Outside) AddRoute(t testing.TB, network string) {
	t.Helper()
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		t.Fatal(err)
	}
	gateway := HostIPv4
	if prefix.Addr().Is6() {
		gateway = HostIPv6
	}
	if err := o.do(func() error { return addRoute(network, gateway) }); err != nil {
		t.Fatalf("add a route to %s outside: %v", network, err)
	}
}

func (o *Outside) connect(h *Host) error {
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: UplinkName},
		PeerName:      UplinkName,
		PeerNamespace: netlink.NsFd(o.netns.Fd()),
	}
	if err := h.do(func() error { return netlink.LinkAdd(veth) }); err != nil {
		return fmt.Errorf("add a veth: %w", err)
	}
	if err := o.do(resetSysctls); err != nil {
		return err
	}
	if err := o.do(func() error { return setUplinkUp(OutsideIPv4+"/24", OutsideIPv6+"/64") }); err != nil {
		return err
	}
	if err := h.do(func() error { return setUplinkUp(HostIPv4+"/24", HostIPv6+"/64") }); err != nil {
		return err
	}
	if err := o.do(awaitUplink); err != nil {
		return err
	}
	return h.do(func() error {
		if err := awaitUplink(); err != nil {
			return err
		}
		if err := addRoute("0.0.0.0/0", OutsideIPv4); err != nil {
			return err
		}
		return addRoute("::/0", OutsideIPv6)
	})
}

// setUplinkUp sets the calling thread's end of the uplink up and gives it addresses.
func setUplinkUp(addresses ...string) error {
	link, err := netlink.LinkByName(UplinkName)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		addr, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD // nobody else is there to have it
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s to %s: %w", address, UplinkName, err)
		}
	}
	// The kernel solicits the neighbours of packets it forwards from the link-local address, and not before duplicate
	// address detection, a second or two, is through with that.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+UplinkName+"/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	// Up after the addresses: the kernel then has their routes when this returns.
	if err := setLinkUp("lo"); err != nil {
		return err
	}
	return setLinkUp(UplinkName)
}

// awaitUplink waits until the calling thread's end of the uplink carries packets. After both ends are up the kernel
// takes up to a second to notice that they have a carrier, and drops packets until it has. It takes a moment, too, to
// have the local route of an IPv6 address, even of one that is not probed.
func awaitUplink() error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		link, err := netlink.LinkByName(UplinkName)
		if err != nil {
			return err
		}
		local, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL, LinkIndex: link.Attrs().Index},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
		if err != nil {
			return err
		}
		if link.Attrs().OperState == netlink.OperUp && slices.ContainsFunc(local, isOfUplink) {
			return nil
		}
	}
	return fmt.Errorf("%s has no carrier or no local IPv6 route after 5 s", UplinkName)
}

// isOfUplink tells whether a local route is that of one of the uplink's addresses.
func isOfUplink(route netlink.Route) bool {
	return route.Dst != nil && (route.Dst.IP.Equal(net.ParseIP(HostIPv6)) || route.Dst.IP.Equal(net.ParseIP(OutsideIPv6)))
}

// addRoute adds a route to the calling thread's network namespace.
func addRoute(network, gateway string) error {
	_, dst, err := net.ParseCIDR(network)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(gateway)}); err != nil {
		return fmt.Errorf("add route to %s via %s: %w", network, gateway, err)
	}
	return nil
}
