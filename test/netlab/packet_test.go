package netlab

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long a packet is waited for that must not arrive.
const silence = 150 * time.Millisecond

// bridgePods connects pods to a bridge on the host: 10.1.0.1 and fd00:1::1, the pods have .2, .3, …
func bridgePods(t *testing.T, h *Host, pods ...*Pod) {
	t.Helper()
	h.MustRun(t, "sh", "-ec", "ip link add br0 type bridge; ip link set br0 up; ip addr add 10.1.0.1/24 dev br0; ip addr add fd00:1::1/64 dev br0 nodad")
	for i, pod := range pods {
		h.MustRun(t, "ip", "link", "add", "veth-"+pod.Name(), "master", "br0", "type", "veth", "peer", "name", "eth0", "netns", pod.Path())
		pod.MustRun(t, "sh", "-ec", strings.ReplaceAll("ip addr add 10.1.0.X/24 dev eth0; ip addr add fd00:1::X/64 dev eth0 nodad; ip link set eth0 up; "+
			"ip route add default via 10.1.0.1; ip route add ::/0 via fd00:1::1", "X", strconv.Itoa(i+2)))
		h.MustRun(t, "ip", "link", "set", "veth-"+pod.Name(), "up")
	}
}

// isTimeout reports whether err says that there was no answer at all, not even a refusal.
func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPodsTalkOverBridge(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	a, b := h.NewPod(t, "a"), h.NewPod(t, "b")
	bridgePods(t, h, a, b)

	tcp := b.ServeTCP(t, ":0")
	udp := b.ServeUDP(t, ":5000")
	for _, family := range []struct{ server, client string }{
		{"10.1.0.3", "10.1.0.2"},
		{"fd00:1::3", "fd00:1::2"},
	} {
		server := netip.MustParseAddr(family.server)
		want := "b saw " + family.client
		if got, err := a.DialTCP(netip.AddrPortFrom(server, tcp.Port()).String(), Patience); got != want {
			t.Errorf("TCP to %s: %q, %v, want %q", server, got, err, want)
		}
		if got, err := a.DialUDP(netip.AddrPortFrom(server, udp.Port()).String(), Patience); got != want {
			t.Errorf("UDP to %s: %q, %v, want %q", server, got, err, want)
		}
		if err := a.Ping(family.server, Patience); err != nil {
			t.Error(err)
		}
	}
}

// TestUDPAnswersFromAddressAsked asks a server at an address that is not the one its answer would have by itself.
func TestUDPAnswersFromAddressAsked(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	outside := h.NewOutside(t)
	outside.MustRun(t, "ip", "addr", "add", "192.0.2.200/32", "dev", UplinkName)
	outside.MustRun(t, "ip", "addr", "add", "2001:db8:2::200/128", "nodad", "dev", UplinkName)
	outside.ServeUDP(t, ":5000")
	outside.ServeUDP(t, "192.0.2.200:5001")
	for target, want := range map[string]string{
		"192.0.2.200:5000":           "outside saw " + HostIPv4,
		"192.0.2.200:5001":           "outside saw " + HostIPv4,
		"[2001:db8:2::200]:5000":     "outside saw " + HostIPv6,
		"[" + OutsideIPv6 + "]:5000": "outside saw " + HostIPv6,
	} {
		if got, err := h.DialUDP(target, Patience); got != want {
			t.Errorf("UDP to %s: %q, %v, want %q", target, got, err, want)
		}
	}
}

// TestOutsideTellsMasquerade is the point of an outside without a route to the pods.
func TestOutsideTellsMasquerade(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	outside := h.NewOutside(t)
	pod := h.NewPod(t, "web")
	bridgePods(t, h, pod)
	h.MustRun(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
	outside.ServeTCP(t, ":80")
	targets := []string{OutsideIPv4 + ":80", "[" + OutsideIPv6 + "]:80"}

	expect := func(when string, want ...string) {
		t.Helper()
		for i, target := range targets {
			if got, err := pod.DialTCP(target, Patience); got != want[i] {
				t.Errorf("%s: %s: %q, %v, want %q", when, target, got, err, want[i])
			}
		}
	}
	for _, target := range targets {
		if got, err := pod.DialTCP(target, silence); !isTimeout(err) {
			t.Errorf("not masqueraded: %s: %q, %v, want a timeout", target, got, err)
		}
	}
	if err := pod.Ping(OutsideIPv4, silence); err == nil || !strings.Contains(err.Error(), "100% packet loss") {
		t.Errorf("not masqueraded: ping: %v, want no answer", err)
	}

	h.MustRun(t, "nft", "add table inet t; add chain inet t c { type nat hook postrouting priority 100; };"+
		"add rule inet t c oifname "+UplinkName+" masquerade")
	expect("masqueraded", "outside saw "+HostIPv4, "outside saw "+HostIPv6)

	h.MustRun(t, "nft", "delete table inet t")
	outside.AddRoute(t, "10.1.0.0/24")
	outside.AddRoute(t, "fd00:1::/64")
	expect("routed", "outside saw 10.1.0.2", "outside saw fd00:1::2")
}

func TestFailuresOfClients(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	h.NewOutside(t)
	tests := []struct {
		name string
		call func() error
		want error
	}{
		{"TCP port closed", func() error { _, err := h.DialTCP(OutsideIPv4+":9", Patience); return err }, unix.ECONNREFUSED},
		{"UDP port closed", func() error { _, err := h.DialUDP("["+OutsideIPv6+"]:9", Patience); return err }, unix.ECONNREFUSED},
		{"no route", func() error {
			h.MustRun(t, "ip", "route", "del", "default")
			_, err := h.DialTCP("198.51.100.1:80", Patience)
			return err
		}, unix.ENETUNREACH},
	}
	for _, tt := range tests {
		if err := tt.call(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if _, err := h.DialTCP("example.org:80", Patience); err == nil {
		t.Error("a name was accepted as an address")
	}
}

// TestPing covers the ways a ping may end but for the one without any answer, which TestOutsideTellsMasquerade has.
func TestPing(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	outside := h.NewOutside(t)
	outside.MustRun(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
	outside.MustRun(t, "ip", "route", "add", "unreachable", "198.51.100.0/24")
	outside.MustRun(t, "ip", "route", "add", "unreachable", "2001:db8:99::/64")
	for _, target := range []string{OutsideIPv4, OutsideIPv6, HostIPv4, HostIPv6, "127.0.0.1", "::1"} {
		if err := h.Ping(target, Patience); err != nil {
			t.Error(err)
		}
	}
	for target, router := range map[string]string{"198.51.100.1": OutsideIPv4, "2001:db8:99::1": OutsideIPv6} {
		if err := h.Ping(target, Patience); err == nil || !strings.Contains(strings.ToLower(err.Error()), "from "+router) {
			t.Errorf("ping %s: %v, want %s to say it is unreachable", target, err, router)
		}
	}
}

func TestSCTP(t *testing.T) {
	Need(t, SCTP)
	t.Parallel()
	h := NewHost(t)
	a, b := h.NewPod(t, "a"), h.NewPod(t, "b")
	bridgePods(t, h, a, b)
	for _, family := range []struct{ listen, target, client string }{
		{":5000", "10.1.0.3:5000", "10.1.0.2"},
		{"[fd00:1::3]:5001", "[fd00:1::3]:5001", "fd00:1::2"},
	} {
		if got, err := a.DialSCTP(family.target, Patience); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("SCTP to %s, where nobody listens: %q, %v, want a refusal", family.target, got, err)
		}
		b.ServeSCTP(t, family.listen)
		if got, err := a.DialSCTP(family.target, Patience); got != "b saw "+family.client {
			t.Errorf("SCTP to %s: %q, %v, want %q", family.target, got, err, "b saw "+family.client)
		}
	}
}
