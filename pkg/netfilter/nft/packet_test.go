package nft

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/localhost"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/test/netlab"
)

// tick is as long as elements stay at most that DEL lets expire.
const tick = 20 * time.Millisecond

// patience is for what must be answered, grace for what must not.
const (
	patience = 5 * time.Second
	grace    = 150 * time.Millisecond
)

// node is a host with a bridge cni0 (10.1.0.1, fd00:1::1), two pods behind it
// (.2 and .3), a third pod on a link of its own (10.2.0.2, fd00:2::2 on p2p0),
// and an outside.
type node struct {
	*netlab.Host
	outside           *netlab.Outside
	web, peer, remote *netlab.Pod
	table             *Conn
}

func newNode(t *testing.T) *node {
	h := netlab.NewHost(t)
	n := &node{
		Host: h, outside: h.NewOutside(t), table: open(t, h),
		web: h.NewPod(t, "web"), peer: h.NewPod(t, "peer"), remote: h.NewPod(t, "remote"),
	}
	sysctl := func(settings ...string) { h.MustRun(t, "sysctl", append([]string{"-qw"}, settings...)...) }
	sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	h.MustRun(t, "ip", "link", "add", "cni0", "type", "bridge")
	n.join(t, n.web, "port0", "10.1.0.2/24", "fd00:1::2/64")
	n.join(t, n.peer, "port1", "10.1.0.3/24", "fd00:1::3/64")
	n.join(t, n.remote, "p2p0", "10.2.0.2/24", "fd00:2::2/64")
	h.MustRun(t, "ip", "link", "set", "port0", "master", "cni0")
	h.MustRun(t, "ip", "link", "set", "port1", "master", "cni0")
	n.gateway(t, "cni0", "10.1.0.1/24", "fd00:1::1/64")
	n.gateway(t, "p2p0", "10.2.0.1/24", "fd00:2::1/64")
	return n
}

func (n *node) gateway(t *testing.T, link, v4, v6 string) {
	t.Helper()
	n.MustRun(t, "ip", "link", "set", link, "up")
	n.MustRun(t, "ip", "addr", "add", v4, "dev", link)
	n.MustRun(t, "ip", "addr", "add", v6, "dev", link, "nodad")
}

// join connects a pod by a veth whose host end is called link. The gateway is
// the first address of each network.
func (n *node) join(t *testing.T, pod *netlab.Pod, link, v4, v6 string) {
	t.Helper()
	n.MustRun(t, "ip", "link", "add", link, "up", "type", "veth", "peer", "name", "eth0", "netns", pod.Name())
	pod.SetLoopbackUp(t)
	pod.MustRun(t, "ip", "link", "set", "eth0", "up")
	pod.MustRun(t, "ip", "addr", "add", v4, "dev", "eth0")
	pod.MustRun(t, "ip", "addr", "add", v6, "dev", "eth0", "nodad")
	for _, p := range prefixes(v4, v6) {
		pod.MustRun(t, "ip", "route", "add", "default", "via", p.Masked().Addr().Next().String())
	}
}

// ask sends until there is an answer: bridges and neighbours need a moment.
func ask(from *netlab.Namespace, network, target string) string {
	dial := from.DialTCP
	if network == "udp" {
		dial = from.DialUDP
	}
	var answer string
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if answer, err = dial(target, time.Second); err == nil {
			return answer
		}
	}
	return err.Error()
}

func (n *node) addPorts(t *testing.T, id string, ports spec.PortMaps) {
	t.Helper()
	n.Do(func() { must(t, n.table.Add(ctx, keyOf(id), ToPublish(ports))) })
}

// TestPublishedPorts asks for each published port from everywhere. With
// br_netfilter packets between ports of a bridge pass our chains too, and one
// that is sent back to where it came from does not leave the bridge: it needs
// the port to be in hairpin mode.
func TestPublishedPorts(t *testing.T) {
	for _, filtered := range []string{"0", "1"} {
		t.Run("bridge-nf-call="+filtered, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			for _, family := range []string{"iptables", "ip6tables"} {
				n.MustRun(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-"+family+"="+filtered)
			}
			if filtered == "1" {
				n.MustRun(t, "ip", "link", "set", "port0", "type", "bridge_slave", "hairpin", "on")
			}
			testPublishedPorts(t, n)
		})
	}
}

func testPublishedPorts(t *testing.T, n *node) {
	n.web.ServeTCP(t, ":80")
	n.web.ServeTCP(t, ":8080")
	n.web.ServeUDP(t, "10.1.0.2:53")
	n.web.ServeUDP(t, "[fd00:1::2]:53")
	n.peer.ServeTCP(t, ":80")
	n.remote.ServeTCP(t, ":80")
	n.addPorts(t, "web", behind("cni0", portMaps(t,
		"tcp/8080=10.1.0.2:80", "tcp/8080=[fd00:1::2]:80",
		"udp/5353=10.1.0.2:53", "udp/5353=[fd00:1::2]:53",
		"tcp/127.0.0.1:7000=10.1.0.2:80",
		"tcp/192.0.2.1:9000=10.1.0.2:80", "tcp/[2001:db8:2::1]:9000=[fd00:1::2]:80")))
	n.addPorts(t, "peer", behind("cni0", portMaps(t, "tcp/9000=10.1.0.3:80", "tcp/9000=[fd00:1::3]:80")))
	own := behind("p2p0", portMaps(t, "tcp/8082=10.2.0.2:80", "tcp/8082=[fd00:2::2]:80"))
	own.InsideShared = false
	n.addPorts(t, "remote", own)

	outside, host, web, peer, remote := &n.outside.Namespace, &n.Namespace, &n.web.Namespace, &n.peer.Namespace, &n.remote.Namespace
	for _, c := range []struct {
		from            *netlab.Namespace
		network, target string
		want            string
	}{
		// From outside the source address is kept.
		{outside, "tcp", "192.0.2.1:8080", "web saw 192.0.2.254"},
		{outside, "tcp", "[2001:db8:2::1]:8080", "web saw 2001:db8:2::254"},
		{outside, "udp", "192.0.2.1:5353", "web saw 192.0.2.254"},
		{outside, "udp", "[2001:db8:2::1]:5353", "web saw 2001:db8:2::254"},
		{outside, "tcp", "192.0.2.1:8082", "remote saw 192.0.2.254"},
		// A port on one address comes before the same port on all.
		{outside, "tcp", "192.0.2.1:9000", "web saw 192.0.2.254"},
		{outside, "tcp", "[2001:db8:2::1]:9000", "web saw 2001:db8:2::254"},
		{host, "tcp", "10.1.0.1:9000", "peer saw 10.1.0.1"},
		// The host itself, by its addresses and 127.0.0.1.
		{host, "tcp", "192.0.2.1:8080", "web saw 192.0.2.1"},
		{host, "tcp", "[2001:db8:2::1]:8080", "web saw 2001:db8:2::1"},
		{host, "tcp", "127.0.0.1:8080", "web saw 10.1.0.1"},
		{host, "tcp", "127.1.2.3:8080", "web saw 10.1.0.1"},
		{host, "udp", "127.0.0.1:5353", "web saw 10.1.0.1"},
		{host, "tcp", "127.0.0.1:7000", "web saw 10.1.0.1"},
		{host, "tcp", "127.0.0.1:8082", "remote saw 10.2.0.1"},
		// Hairpin: the container itself.
		{web, "tcp", "192.0.2.1:8080", "web saw 10.1.0.1"},
		{web, "tcp", "10.1.0.1:8080", "web saw 10.1.0.1"},
		{web, "tcp", "[2001:db8:2::1]:8080", "web saw fd00:1::1"},
		{web, "udp", "192.0.2.1:5353", "web saw 10.1.0.1"},
		{web, "tcp", "192.0.2.1:9000", "web saw 10.1.0.1"},
		{remote, "tcp", "192.0.2.1:8082", "remote saw 10.2.0.1"},
		{remote, "tcp", "[2001:db8:2::1]:8082", "remote saw fd00:2::1"},
		// Another container of the same bridge.
		{peer, "tcp", "192.0.2.1:8080", "web saw 10.1.0.1"},
		{peer, "tcp", "[2001:db8:2::1]:8080", "web saw fd00:1::1"},
		{peer, "udp", "10.1.0.1:5353", "web saw 10.1.0.1"},
		{peer, "udp", "[fd00:1::1]:5353", "web saw fd00:1::1"},
		{peer, "tcp", "192.0.2.1:9000", "web saw 10.1.0.1"},
		// One on another link is seen as it is.
		{remote, "tcp", "192.0.2.1:8080", "web saw 10.2.0.2"},
		{remote, "tcp", "[2001:db8:2::1]:8080", "web saw fd00:2::2"},
		{web, "tcp", "192.0.2.1:8082", "remote saw 10.1.0.2"},
		// Not by way of the host.
		{peer, "tcp", "10.1.0.2:80", "web saw 10.1.0.3"},
		{peer, "tcp", "10.1.0.2:8080", "web saw 10.1.0.3"},
	} {
		if got := ask(c.from, c.network, c.target); got != c.want {
			t.Errorf("%s to %s %s: %q, want %q", c.from.Name(), c.network, c.target, got, c.want)
		}
	}

	for _, c := range []struct {
		from   *netlab.Namespace
		target string
	}{
		{host, "[::1]:8080"},           // can't work: refused, not lost
		{outside, "192.0.2.1:7000"},    // published on 127.0.0.1 only
		{peer, "10.1.0.1:7000"},        //
		{outside, "192.0.2.1:80"},      // the container's port
		{host, "[2001:db8:2::1]:5353"}, // UDP only
	} {
		if got, err := c.from.DialTCP(c.target, patience); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s to %s: %q, %v, want it refused", c.from.Name(), c.target, got, err)
		}
	}
	n.Do(func() { delPorts(t, n.table, keyOf("web")) })
	time.Sleep(tick)
	if got, err := outside.DialTCP("192.0.2.1:8080", patience); err == nil {
		t.Errorf("a port answers after it was taken back: %q", got)
	}
	if got := ask(outside, "tcp", "192.0.2.1:9000"); got != "peer saw 192.0.2.254" {
		t.Errorf("the port on all addresses after that on one was taken back: %q", got)
	}
}

// TestLocalhostIsGuarded has neighbours send to 127.0.0.1 of the host, which
// route_localnet would let them (CVE-2020-8558).
func TestLocalhostIsGuarded(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.ServeTCP(t, "127.0.0.1:22")
	n.web.ServeTCP(t, ":80")
	n.addPorts(t, "web", behind("cni0", portMaps(t, "tcp/127.0.0.1:7000=10.1.0.2:80", "tcp/7001=10.1.0.2:80")))
	attack := func(from *netlab.Namespace, link, gateway string) {
		t.Helper()
		from.MustRun(t, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
		from.MustRun(t, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
		from.MustRun(t, "ip", "route", "add", "127.0.0.0/8", "via", gateway, "dev", link, "table", "main")
		for _, port := range []int{22, 7000, 7001} {
			if got, err := from.DialTCP(fmt.Sprintf("127.0.0.1:%d", port), grace); err == nil {
				t.Errorf("%s reaches 127.0.0.1:%d of the host: %q", from.Name(), port, got)
			}
		}
	}
	attack(&n.peer.Namespace, "eth0", "10.1.0.1")
	attack(&n.outside.Namespace, netlab.UplinkName, netlab.HostIPv4)
	// The attack itself works: without the guard it gets through.
	n.MustRun(t, "nft", "flush", "chain", "inet", hostTable.Name, "guard_v1")
	if got := ask(&n.peer.Namespace, "tcp", "127.0.0.1:22"); !strings.HasPrefix(got, "host saw") {
		t.Errorf("without the guard: %q", got)
	}
}

// TestForeignConnectionsKeepTheirSource uses a DNAT that is not ours, to a
// container that also publishes ports.
func TestForeignConnectionsKeepTheirSource(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.MustRun(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1")
	n.web.ServeTCP(t, ":80")
	n.addPorts(t, "web", behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80")))
	n.MustRun(t, "nft", "add table ip service; add chain ip service pre { type nat hook prerouting priority -100; };"+
		"add rule ip service pre ip daddr 10.96.0.1 tcp dport 80 dnat to 10.1.0.2:80")
	if got, want := ask(&n.peer.Namespace, "tcp", "10.96.0.1:80"), "web saw 10.1.0.3"; got != want {
		t.Errorf("through a service: %q, want %q", got, want)
	}
}

func TestMasqAll(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.web.ServeTCP(t, ":80")
	ports := behind("cni0", portMaps(t, "tcp/8080=10.1.0.2:80", "tcp/8080=[fd00:1::2]:80", "tcp/192.0.2.1:9000=10.1.0.2:80"))
	ports.MasqAll = true
	n.addPorts(t, "web", ports)
	for target, want := range map[string]string{
		"192.0.2.1:8080":       "web saw 10.1.0.1",
		"[2001:db8:2::1]:8080": "web saw fd00:1::1",
		"192.0.2.1:9000":       "web saw 10.1.0.1",
	} {
		if got := ask(&n.outside.Namespace, "tcp", target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func TestWithoutSNAT(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.web.ServeTCP(t, ":80")
	n.addPorts(t, "web", spec.PortMaps{Maps: portMaps(t, "tcp/8080=10.1.0.2:80"), Inside: "cni0", InsideShared: true})
	if got := ask(&n.outside.Namespace, "tcp", "192.0.2.1:8080"); got != "web saw 192.0.2.254" {
		t.Errorf("from outside: %q", got)
	}
	if got, err := n.web.DialTCP("192.0.2.1:8080", grace); err == nil {
		t.Errorf("hairpin: %q", got)
	}
	n.Do(func() {
		if allowed, err := localhost.IsAllowed("cni0"); allowed || err != nil {
			t.Errorf("route_localnet is %v, %v", allowed, err)
		}
	})
}

// TestMasquerade uses an outside that has no routes to the pods.
func TestMasquerade(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.outside.ServeTCP(t, ":80")
	n.web.ServeTCP(t, ":80")
	must(t, n.table.Add(ctx, keyOf("peer"), ToMasquerade(prefixes("10.1.0.3/24", "fd00:1::3/64"))))
	must(t, n.table.Add(ctx, keyOf("remote"), ToMasquerade(prefixes("10.2.0.2/32", "fd00:2::2/128"))))
	for _, c := range []struct {
		from         *netlab.Pod
		target, want string
	}{
		{n.peer, "192.0.2.254:80", "outside saw 192.0.2.1"},
		{n.peer, "[2001:db8:2::254]:80", "outside saw 2001:db8:2::1"},
		{n.remote, "192.0.2.254:80", "outside saw 192.0.2.1"},
		{n.remote, "[2001:db8:2::254]:80", "outside saw 2001:db8:2::1"},
		{n.peer, "10.1.0.2:80", "web saw 10.1.0.3"},
		{n.peer, "[fd00:1::2]:80", "web saw fd00:1::3"},
		{n.remote, "10.1.0.2:80", "web saw 10.1.0.1"},
	} {
		if got := ask(&c.from.Namespace, "tcp", c.target); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from.Name(), c.target, got, c.want)
		}
	}
	del(t, n.table, Masquerading, keyOf("peer"))
	time.Sleep(tick)
	if got, err := n.peer.DialTCP("192.0.2.254:80", grace); err == nil {
		t.Errorf("masqueraded after it was taken back: %q", got)
	}
}
