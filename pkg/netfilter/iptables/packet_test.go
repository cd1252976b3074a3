package iptables

import (
	"net/netip"
	"testing"
	"time"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// patience is for what must be answered, grace for what must not.
const (
	patience = 5 * time.Second
	grace    = 200 * time.Millisecond
)

// site is a host that forwards nothing by itself, with bridges br0 and br1, two
// pods behind the first and one behind the second, and an outside.
type site struct {
	*node
	outside          *netlab.Outside
	web, peer, other *netlab.Pod
}

func newSite(t *testing.T, n *node) *site {
	s := &site{node: n, outside: n.NewOutside(t), web: n.NewPod(t, "web"), peer: n.NewPod(t, "peer"), other: n.NewPod(t, "other")}
	n.MustRun(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1")
	s.bridge(t, "br0", "10.1.0.1/24", "fd00:1::1/64")
	s.bridge(t, "br1", "10.2.0.1/24", "fd00:2::1/64")
	s.join(t, s.web, "br0", "10.1.0.2/24", "fd00:1::2/64")
	s.join(t, s.peer, "br0", "10.1.0.3/24", "fd00:1::3/64")
	s.join(t, s.other, "br1", "10.2.0.2/24", "fd00:2::2/64")
	for _, family := range []string{"iptables", "ip6tables"} {
		n.MustRun(t, family+"-"+n.flavour, "-P", "FORWARD", "DROP")
	}
	return s
}

func (s *site) bridge(t *testing.T, name, v4, v6 string) {
	t.Helper()
	s.MustRun(t, "ip", "link", "add", name, "up", "type", "bridge")
	s.MustRun(t, "ip", "addr", "add", v4, "dev", name)
	s.MustRun(t, "ip", "addr", "add", v6, "dev", name, "nodad")
}

func (s *site) join(t *testing.T, pod *netlab.Pod, bridge, v4, v6 string) {
	t.Helper()
	s.MustRun(t, "ip", "link", "add", pod.Name()+"0", "up", "master", bridge, "type", "veth", "peer", "name", "eth0", "netns", pod.Name())
	pod.MustRun(t, "ip", "link", "set", "eth0", "up")
	pod.MustRun(t, "ip", "addr", "add", v4, "dev", "eth0")
	pod.MustRun(t, "ip", "addr", "add", v6, "dev", "eth0", "nodad")
	for _, p := range prefixes(v4, v6) {
		pod.MustRun(t, "ip", "route", "add", "default", "via", p.Masked().Addr().Next().String())
	}
	pod.ServeTCP(t, ":80")
}

// attach does what bridge, portmap and firewall do for a pod.
func (s *site) attach(t *testing.T, pod *netlab.Pod, bridge string, ingress netfilter.Ingress, port, v4, v6 string) {
	t.Helper()
	key := plugin.Key{Network: "net", ContainerID: pod.ID, IfName: "eth0"}
	nets := prefixes(v4, v6)
	ports := netfilter.PortMaps{SNAT: true, MarkBit: 13, Networks: nets, Inside: bridge, InsideShared: true, Maps: []netfilter.PortMap{
		portMap(t, "tcp/"+port+"="+netip.AddrPortFrom(nets[0].Addr(), 80).String()),
		portMap(t, "tcp/"+port+"="+netip.AddrPortFrom(nets[1].Addr(), 80).String()),
	}}
	s.do(t, func() error { return New().AddMasquerade(ctx, key, nets) })
	s.do(t, func() error { return New().AddPortMaps(ctx, key, ports) })
	s.do(t, func() error {
		return New().AddForward(ctx, key, netfilter.Forward{Addrs: []netip.Addr{nets[0].Addr(), nets[1].Addr()}, Ingress: ingress, Bridge: bridge})
	})
	s.do(t, func() error { return New().CheckPortMaps(ctx, key, ports) })
}

// answered tells whether a target answers in time; bridges and neighbours need
// a moment.
func answered(from *netlab.Namespace, target string) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err := from.DialTCP(target, time.Second); err == nil {
			return true
		}
	}
	return false
}

func reached(t *testing.T, from *netlab.Namespace, targets ...string) {
	t.Helper()
	for _, target := range targets {
		if !answered(from, target) {
			t.Errorf("%s does not reach %s", from.Name(), target)
		}
	}
}

func blocked(t *testing.T, from *netlab.Namespace, targets ...string) {
	t.Helper()
	for _, target := range targets {
		if answer, err := from.DialTCP(target, grace); err == nil {
			t.Errorf("%s reaches %s: %s", from.Name(), target, answer)
		}
	}
}

func TestPackets(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		s := newSite(t, n)
		outside, web := &s.outside.Namespace, &s.web.Namespace
		s.outside.ServeTCP(t, ":80")
		away := []string{netlab.OutsideIPv4 + ":80", "[" + netlab.OutsideIPv6 + "]:80"}
		published := []string{netlab.HostIPv4 + ":8080", "[" + netlab.HostIPv6 + "]:8080"}
		blocked(t, web, away...)

		s.attach(t, s.web, "br0", netfilter.Open, "8080", "10.1.0.2/24", "fd00:1::2/64")
		reached(t, web, away...)
		blocked(t, outside, published...)
		for _, family := range []string{"iptables", "ip6tables"} { // as docs/firewall.md says
			n.MustRun(t, family+"-"+n.flavour, "-A", "CNI-ADMIN", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
		}
		reached(t, outside, published...)
		reached(t, &s.Namespace, "127.0.0.1:8080", netlab.HostIPv4+":8080", "["+netlab.HostIPv6+"]:8080")
		reached(t, &s.peer.Namespace, "10.1.0.1:8080", "[fd00:1::1]:8080")
		s.outside.MustRun(t, "ip", "route", "add", "10.1.0.0/24", "via", netlab.HostIPv4)
		blocked(t, outside, "10.1.0.2:80") // not published

		s.restore(t, "filter", "-I CNI-ADMIN -p tcp --dport 80 -d 10.1.0.2 -j DROP")
		blocked(t, outside, published[0])
		s.restore(t, "filter", "-D CNI-ADMIN 1")
		reached(t, outside, published[0])

		key := plugin.Key{Network: "net", ContainerID: s.web.ID, IfName: "eth0"}
		n.do(t, func() error { return New().DelForward(ctx, key, nil) })
		blocked(t, web, away...)
	})
}

func TestPacketsIsolated(t *testing.T) {
	eachFlavour(t, func(t *testing.T, n *node) {
		s := newSite(t, n)
		web, peer, other := &s.web.Namespace, &s.peer.Namespace, &s.other.Namespace
		attach := func(ingress netfilter.Ingress) {
			s.attach(t, s.web, "br0", ingress, "8080", "10.1.0.2/24", "fd00:1::2/64")
			s.attach(t, s.peer, "br0", ingress, "8081", "10.1.0.3/24", "fd00:1::3/64")
			s.attach(t, s.other, "br1", ingress, "8082", "10.2.0.2/24", "fd00:2::2/64")
		}
		attach(netfilter.Open)
		reached(t, web, "10.2.0.2:80", "[fd00:2::2]:80", "10.1.0.3:80", "[fd00:1::3]:80")
		attach(netfilter.SameBridge)
		reached(t, web, "10.1.0.3:80", "[fd00:1::3]:80")
		blocked(t, web, "10.2.0.2:80", "[fd00:2::2]:80")
		blocked(t, other, "10.1.0.2:80", "[fd00:1::2]:80")
		attach(netfilter.Isolated)
		blocked(t, web, "10.2.0.2:80", "[fd00:2::2]:80", "10.1.0.3:80", "[fd00:1::3]:80")
		blocked(t, peer, "10.1.0.2:80", "[fd00:1::2]:80")
		attach(netfilter.Open)
		reached(t, web, "10.2.0.2:80", "[fd00:2::2]:80", "10.1.0.3:80", "[fd00:1::3]:80")
	})
}
