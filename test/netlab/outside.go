package netlab

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
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
	there := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), netns.Fd())
	for _, step := range []struct {
		in *Namespace
		do func() error
	}{
		{&h.Namespace, func() error {
			return runIP("link add " + UplinkName + " type veth peer name " + UplinkName + " netns " + there)
		}},
		{&o.Namespace, resetSysctls},
		{&o.Namespace, func() error { return setUplinkUp(OutsideIPv4, OutsideIPv6) }},
		{&h.Namespace, func() error { return setUplinkUp(HostIPv4, HostIPv6) }},
		{&o.Namespace, func() error { return awaitUplink(OutsideIPv6) }},
		{&h.Namespace, func() error { return awaitUplink(HostIPv6) }},
		{&h.Namespace, func() error { return runIP("route add 0.0.0.0/0 via "+OutsideIPv4, "route add ::/0 via "+OutsideIPv6) }},
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

// setUplinkUp gives the calling thread's end of the uplink its addresses and sets it up.
func setUplinkUp(ipv4, ipv6 string) error {
	// The kernel solicits the neighbours of packets it forwards from the link-local address, and not before duplicate
	// address detection, a second or two, is through with that.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+UplinkName+"/accept_dad", []byte("0"), 0); err != nil {
		return err
	}
	// Up after the addresses: the kernel then has their routes when this returns.
	return runIP("address add "+ipv4+"/24 dev "+UplinkName, "address add "+ipv6+"/64 nodad dev "+UplinkName,
		"link set lo up", "link set "+UplinkName+" up")
}

// awaitUplink waits until the calling thread's end of the uplink carries packets. After both ends are up the kernel
// takes up to a second to notice that they have a carrier, and drops packets until it has. It takes a moment, too, to
// have the local route of an IPv6 address, even of one that is not probed.
func awaitUplink(ipv6 string) error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		links, err := list("ip -j link show dev " + UplinkName)
		if err != nil {
			return err
		}
		local, err := list("ip -j -6 route show table local " + ipv6)
		if err != nil {
			return err
		}
		if links[0]["operstate"] == "UP" && len(local) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s has no carrier or no local IPv6 route after 5 s", UplinkName)
}
