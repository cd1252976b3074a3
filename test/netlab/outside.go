package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

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

// uplinkIndex is not what a first link gets by itself, as the uplink's other end does.
const uplinkIndex = 1000

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
	for _, step := range []struct {
		in *Namespace
		do func() error
	}{
		{&h.Namespace, func() error { return makeUplink(netns) }},
		{&o.Namespace, resetSysctls},
		{&o.Namespace, func() error { return setUplinkUp(OutsideIPv4, OutsideIPv6) }},
		{&h.Namespace, func() error { return setUplinkUp(HostIPv4, HostIPv6) }},
		{&o.Namespace, func() error { return awaitUplink(OutsideIPv6) }},
		{&h.Namespace, func() error { return awaitUplink(HostIPv6) }},
		{&h.Namespace, routeOutside},
	} {
		if err := step.in.do(step.do); err != nil {
			t.Fatal("connect a host to its outside: ", err)
		}
	}
	return o
}

// AddRoute gives the outside a route to a pod network through the Host.
func (o *Outside) AddRoute(t testing.TB, network string) {
	t.Helper()
	gateway := HostIPv4
	if strings.Contains(network, ":") {
		gateway = HostIPv6
	}
	o.MustRun(t, "ip", "route", "add", network, "via", gateway)
}

// makeUplink makes the uplink's two ends: one for the calling thread, and one for the outside.
func makeUplink(outside *os.File) error {
	attrs := netlink.NewLinkAttrs()
	// The kernel notices the carrier of a link at once, rather than within a second, only where the two ends have different indexes.
	attrs.Name, attrs.Index = UplinkName, uplinkIndex
	uplink := netlink.NewVeth(attrs)
	uplink.PeerName, uplink.PeerNamespace = UplinkName, netlink.NsFd(int(outside.Fd()))
	return netlink.LinkAdd(uplink)
}

// setUplinkUp gives the calling thread's end of the uplink its addresses and sets it up.
func setUplinkUp(ipv4, ipv6 string) error {
	// The kernel solicits the neighbours of packets it forwards from the link-local address, and not before duplicate
	// address detection, a second or two, is through with that.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+UplinkName+"/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	end, err := netlink.LinkByName(UplinkName)
	if err != nil {
		return err
	}
	v4 := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ipv4), Mask: net.CIDRMask(24, 32)}}
	v6 := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ipv6), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
	// Up after the addresses: the kernel then has their routes when this returns.
	return errors.Join(netlink.AddrAdd(end, v4), netlink.AddrAdd(end, v6), setLoopbackUp(), netlink.LinkSetUp(end))
}

// awaitUplink waits until the calling thread's end of the uplink carries packets. After both ends are up the kernel
// takes a moment to notice that they have a carrier, and drops packets until it has, and another one to have the local
// route of an IPv6 address, even of one that is not probed.
func awaitUplink(ipv6 string) error {
	return Await(func() error {
		link, err := netlink.LinkByName(UplinkName)
		if err != nil {
			return err
		}
		local, err := netlink.RouteGet(net.ParseIP(ipv6))
		if link.Attrs().OperState == netlink.OperUp && err == nil && local[0].Type == unix.RTN_LOCAL {
			return nil
		}
		return fmt.Errorf("%s has no carrier or no local IPv6 route", UplinkName)
	})
}

// routeOutside makes the uplink the calling thread's default route.
func routeOutside() error {
	return errors.Join(
		netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(OutsideIPv4)}), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(OutsideIPv6)}))
}
