package firewall

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestMatrix sends packets along every path of each kind (masquerading, published
// ports, forwarding, the spoof check), for each backend, protocol and family.
func TestMatrix(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, backend){"routed": testRouted, "bridged": testBridged, "closed": testClosed} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, b)
				})
			}
			for _, p := range proxies {
				for _, o := range orders {
					t.Run("Service wins: kube-proxy "+p.name+", its rules "+o, func(t *testing.T) {
						t.Parallel()
						testService(t, b, p, o)
					})
				}
			}
		})
	}
}

// path is a way of packets, and what is tried of it. "web outside:80 = outside saw host"
// is a connection of the container web to port 80 of the outside, which answers, and
// sees the host's address. A family or a backend before it says where that is so.
type path struct {
	name   string
	probes []string
}

// paths are to published ports, and those that are masqueraded or not.
var paths = []path{
	{"outside to a published port", []string{"outside host:8080 = web saw outside", "outside second:8080 = web saw outside"}},
	{"the host by its address", []string{"host host:8080 = web saw host"}},
	{"the host by localhost", []string{
		"v4: host loopback:8080 = web saw gateway",
		// No packet can leave the loopback link from [::1]: the kernel has no route_localnet for IPv6. The host itself serves there.
		"v6: nftables: host loopback:8080 = host saw loopback",
		"v6: iptables: host loopback:8080 = nobody",
	}},
	{"the container itself (hairpin)", []string{"web host:8080 = web saw gateway"}},
	{"another pod of the bridge", []string{"peer host:8080 = web saw gateway", "peer gateway:8080 = web saw gateway"}},
	{"a pod of another bridge", []string{"remote host:8080 = web saw gateway"}},
	{"hostIP: an address of the node", []string{
		"outside host:9090 = web saw outside",
		"host host:9090 = web saw host",
		"peer host:9090 = web saw gateway",
		"outside second:9090 = host saw outside", // on another address the port is the host's own
		"host gateway:9090 = nobody",
	}},
	{"hostIP: 127.0.0.1", []string{
		"v4: host loopback:9191 = web saw gateway",
		"v6: host loopback:9191 = nobody",
		"outside host:9191 = nobody",
	}},
	{"masquerading ends at the bridge", []string{"web peer:8080 = peer saw web"}},
	{"a published port's number at another machine", []string{
		"web outside:8080 = outside saw host",
		"host outside:8080 = outside saw host",
		"outside peer:8080 = peer saw outside",
	}},
}

// closedPaths are what firewall lets through a node that drops what it is to
// forward, and what it and the spoof check stop.
var closedPaths = []path{
	{"forwarding from a container to the outside", []string{"web outside:8080 = outside saw host"}},
	{"forwarding from the outside to a container", []string{"outside web:80 = nobody"}},
	{"forwarding from the host to a container", []string{"host web:80 = web saw gateway"}},
	{"forwarding to a published port", []string{
		"nftables: outside host:8080 = web saw outside",
		"iptables: outside host:8080 = nobody", // it is up to the administrator's chain
	}},
	{"forwarding within a protected bridge", []string{"peer web:80 = web saw peer"}},
	{"forwarding from one protected bridge to another", []string{"remote web:80 = nobody", "web remote:80 = nobody"}},
	{"spoof check of a container with its own MAC address", []string{"peer gateway:80 = host saw peer"}},
	{"spoof check of a container with another one", []string{"forger gateway:80 = nobody", "forger peer:8080 = nobody"}},
}

func testRouted(t *testing.T, b backend) { testPaths(t, newNode(t, b, false), false) }

// testBridged has the packet filter see packets that cross a bridge, as it does on
// nodes of Kubernetes. A container then reaches its own published port by the
// bridge alone, which takes hairpin mode.
func testBridged(t *testing.T, b backend) { testPaths(t, newNode(t, b, true), true) }

func testPaths(t *testing.T, n *node, hairpin bool) {
	pods := podsBridge
	pods.hairpin = hairpin
	n.attach(t, network(n.backend, pods))
	n.pods["remote"] = attach(t, n.Host, network(n.backend, otherBridge), "remote")
	n.testAll(t, paths)
}

// testClosed has a node that drops what it is to forward, as Docker makes it, and
// networks that firewall lets through and keeps apart.
func testClosed(t *testing.T, b backend) {
	n := newNode(t, b, false)
	for _, f := range families {
		program := f.iptables
		if b.flavour != "" {
			program += "-" + b.flavour
		}
		n.MustRun(t, program, "-P", "FORWARD", "DROP")
	}
	pods, other := podsBridge, otherBridge
	pods.guarded, other.guarded = true, true
	n.attach(t, network(b, pods))
	remote, forger := attach(t, n.Host, network(b, other), "remote"), attach(t, n.Host, network(b, pods), "forger")
	n.pods["remote"], n.pods["forger"] = remote, forger
	forger.MustRun(t, "ip", "link", "set", "eth0", "address", "02:66:66:66:66:66")
	for _, p := range protocols {
		if p.available(t) {
			remote.serve(t, p, webPort)
		}
	}
	n.testAll(t, closedPaths)
}

// node is a host with containers, by their names: web, which publishes ports, and
// those that ask for them: peer and forger on the same bridge, remote on another.
type node struct {
	*netlab.Host
	backend backend
	outside *netlab.Outside
	pods    map[string]*container
}

// What web publishes, and the number of the port it serves.
const (
	anyPort      = 8080 // on all addresses
	hostIPPort   = 9090 // on the node's first IPv4 and IPv6 address
	loopbackPort = 9191 // on 127.0.0.1
	webPort      = 80
)

// webPorts returns what web publishes.
func webPorts() []port {
	var ports []port
	for _, p := range protocols {
		ports = append(ports,
			port{anyPort, webPort, p.name, ""},
			port{hostIPPort, webPort, p.name, netlab.HostIPv4},
			port{hostIPPort, webPort, p.name, netlab.HostIPv6},
			port{loopbackPort, webPort, p.name, "127.0.0.1"})
	}
	return ports
}

// newNode returns a node without containers, on which the packet filter sees
// bridged packets or does not.
func newNode(t *testing.T, b backend, bridged bool) *node {
	t.Helper()
	host := newHost(t, b)
	n := &node{Host: host, backend: b, outside: host.NewOutside(t)}
	host.FilterBridged(t, bridged)
	host.MustRun(t, "ip", "address", "add", "192.0.2.7/24", "dev", netlab.UplinkName)
	host.MustRun(t, "ip", "address", "add", "2001:db8:2::7/64", "dev", netlab.UplinkName, "nodad", "preferred_lft", "0") // not a source
	n.outside.AddRoute(t, podsBridge.subnet4)
	n.outside.AddRoute(t, podsBridge.subnet6)
	return n
}

// attach attaches web and peer. They serve, as does all else that paths lead to.
func (n *node) attach(t *testing.T, conflist string) {
	t.Helper()
	web, peer := attach(t, n.Host, conflist, "web", webPorts()...), attach(t, n.Host, conflist, "peer")
	n.pods = map[string]*container{"web": web, "peer": peer}
	for _, p := range protocols {
		if !p.available(t) {
			continue
		}
		web.serve(t, p, webPort)
		peer.serve(t, p, anyPort)
		p.serve(t, &n.Namespace, at(netip.IPv6Loopback(), anyPort))
		p.serve(t, &n.Namespace, at(netip.IPv6Unspecified(), webPort)) // also by addresses that are still tentative
		for _, f := range families {
			p.serve(t, &n.outside.Namespace, at(f.outside, anyPort))
			p.serve(t, &n.Namespace, at(f.second, hostIPPort))
		}
	}
}

// testAll runs a subtest for each path, protocol and family, all at once.
func (n *node) testAll(t *testing.T, paths []path) {
	for _, path := range paths {
		for _, p := range protocols {
			for _, f := range families {
				t.Run(path.name+"/"+p.name+"/"+f.name, func(t *testing.T) {
					t.Parallel()
					if p.name == "sctp" {
						netlab.Need(t, netlab.SCTP)
					}
					var all sync.WaitGroup
					for _, probe := range path.probes {
						all.Go(func() { n.try(t, p, f, probe) })
					}
					all.Wait()
				})
			}
		}
	}
}

// try makes sure of what a path's text says, if it is about the family and the backend.
func (n *node) try(t *testing.T, p protocol, f family, probe string) {
	t.Helper()
	words := strings.Fields(probe)
	for ; strings.HasSuffix(words[0], ":"); words = words[1:] {
		if only := strings.TrimSuffix(words[0], ":"); only != f.name && only != n.backend.config {
			return
		}
	}
	from, answers := &n.Namespace, strings.Join(words[3:], " ")
	switch words[0] {
	case "host":
	case "outside":
		from = &n.outside.Namespace
	default:
		from = &n.pods[words[0]].Namespace
	}
	to, port, _ := strings.Cut(words[1], ":")
	target := net.JoinHostPort(n.address(f, to).String(), port)
	if answers == "nobody" {
		p.refused(t, from, target)
		return
	}
	if who, seen, _ := strings.Cut(answers, " saw "); seen != "" {
		answers = who + " saw " + n.address(f, seen).String()
	}
	p.ask(t, question{from, target, answers})
}

// address returns what a path's text calls so.
func (n *node) address(f family, name string) netip.Addr {
	switch name {
	case "host":
		return f.host
	case "second":
		return f.second
	case "outside":
		return f.outside
	case "loopback":
		return f.loopback
	case "gateway":
		return f.gateway
	}
	return f.container(n.pods[name])
}
