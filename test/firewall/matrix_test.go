package firewall

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestMatrix sends packets along every path, for each backend, protocol and
// family.
func TestMatrix(t *testing.T) {
	results := newTable()
	results.rows = rows()
	for _, b := range backends {
		for _, p := range protocols {
			for _, f := range families {
				results.columns = append(results.columns, column(b, p, f))
			}
		}
	}
	t.Cleanup(func() { results.publish(t) }) // after the parallel subtests
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range filters {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					testPaths(t, results, b, f)
				})
			}
			for _, p := range proxies {
				for _, o := range orders {
					t.Run(p.name+" "+o, func(t *testing.T) {
						t.Parallel()
						testService(t, results, b, p, o)
					})
				}
			}
		})
	}
}

// column is the name of a column of the matrix.
func column(b backend, p protocol, f family) string { return b.name + " " + p.name + " " + f.name }

// rows returns the names of the matrix's rows.
func rows() []string {
	var names []string
	for _, f := range filters {
		for _, p := range paths {
			names = append(names, p.name+f.suffix)
		}
	}
	for _, p := range proxies {
		for _, o := range orders {
			names = append(names, p.row(o))
		}
	}
	return names
}

// filter is whether the packet filter sees packets that cross a bridge, as it
// does on nodes of Kubernetes. A container then reaches its own published port
// by the bridge alone, which takes hairpin mode.
type filter struct {
	name, suffix string
	on           bool
}

var filters = []filter{
	{"routed", "", false},
	{"bridged", ", br_netfilter", true},
}

// node is a host with a container, web, that publishes ports, and all that ask
// for them.
type node struct {
	*netlab.Host
	backend backend
	outside *netlab.Outside
	web     *container
	peer    *container // on the same bridge
	remote  *container // on another bridge
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
	filterBridged(t, host, bridged)
	host.MustRun(t, "ip", "address", "add", "192.0.2.7/24", "dev", netlab.UplinkName)
	host.MustRun(t, "ip", "address", "add", "2001:db8:2::7/64", "dev", netlab.UplinkName, "nodad", "preferred_lft", "0") // not a source
	n.outside.AddRoute(t, podsBridge.subnet4)
	n.outside.AddRoute(t, podsBridge.subnet6)
	return n
}

// attach attaches web and peer, and has them serve.
func (n *node) attach(t *testing.T, conflist string) {
	t.Helper()
	n.web = attach(t, n.Host, conflist, "web", webPorts()...)
	n.peer = attach(t, n.Host, conflist, "peer")
	for _, p := range protocols {
		if p.available(t) {
			n.web.serve(t, p, webPort)
			n.peer.serve(t, p, anyPort)
		}
	}
}

func testPaths(t *testing.T, results *table, b backend, filter filter) {
	n := newNode(t, b, filter.on)
	pods := podsBridge
	pods.hairpin = filter.on
	n.attach(t, network(b, pods))
	n.remote = attach(t, n.Host, network(b, otherBridge), "remote")
	for _, path := range paths {
		for _, p := range protocols {
			for _, f := range families {
				results.cell(t, path.name+filter.suffix, b, p, f, func(t *testing.T) string { return path.test(t, n, p, f) })
			}
		}
	}
}

// paths are the ways of packets. A test returns why there is nothing to
// promise, if that is so.
var paths = []struct {
	name string
	test func(*testing.T, *node, protocol, family) string
}{
	{"outside to a published port", func(t *testing.T, n *node, p protocol, f family) string {
		p.ask(t, question{&n.outside.Namespace, at(f.host, anyPort), "web saw " + f.outside.String()})
		p.ask(t, question{&n.outside.Namespace, at(f.second, anyPort), "web saw " + f.outside.String()})
		return ""
	}},
	{"the host by its address", func(t *testing.T, n *node, p protocol, f family) string {
		p.ask(t, question{&n.Namespace, at(f.host, anyPort), "web saw " + f.host.String()})
		return ""
	}},
	{"the host by localhost", testLocalhost},
	{"the container itself (hairpin)", func(t *testing.T, n *node, p protocol, f family) string {
		p.ask(t, question{&n.web.Namespace, at(f.host, anyPort), "web saw " + f.gateway.String()})
		return ""
	}},
	{"another pod of the bridge", func(t *testing.T, n *node, p protocol, f family) string {
		p.ask(t, question{&n.peer.Namespace, at(f.host, anyPort), "web saw " + f.gateway.String()})
		p.ask(t, question{&n.peer.Namespace, at(f.gateway, anyPort), "web saw " + f.gateway.String()})
		return ""
	}},
	{"a pod of another bridge", func(t *testing.T, n *node, p protocol, f family) string {
		p.ask(t, question{&n.remote.Namespace, at(f.host, anyPort), "web saw " + f.gateway.String()})
		return ""
	}},
	{"hostIP: an address of the node", func(t *testing.T, n *node, p protocol, f family) string {
		p.serve(t, &n.Namespace, at(f.second, hostIPPort))
		p.ask(t, question{&n.outside.Namespace, at(f.host, hostIPPort), "web saw " + f.outside.String()})
		p.ask(t, question{&n.Namespace, at(f.host, hostIPPort), "web saw " + f.host.String()})
		p.ask(t, question{&n.peer.Namespace, at(f.host, hostIPPort), "web saw " + f.gateway.String()})
		// On another address the port is the host's own.
		p.ask(t, question{&n.outside.Namespace, at(f.second, hostIPPort), "host saw " + f.outside.String()})
		p.refused(t, &n.Namespace, at(f.gateway, hostIPPort))
		return ""
	}},
	{"hostIP: 127.0.0.1", func(t *testing.T, n *node, p protocol, f family) string {
		if f.loopback.Is4() {
			p.ask(t, question{&n.Namespace, at(f.loopback, loopbackPort), "web saw " + f.gateway.String()})
		} else {
			p.refused(t, &n.Namespace, at(f.loopback, loopbackPort))
		}
		p.refused(t, &n.outside.Namespace, at(f.host, loopbackPort))
		return ""
	}},
	{"not for this node", func(t *testing.T, n *node, p protocol, f family) string {
		// A published port's number, at the address of another machine.
		p.serve(t, &n.outside.Namespace, at(f.outside, anyPort))
		p.ask(t, question{&n.web.Namespace, at(f.outside, anyPort), "outside saw " + f.host.String()})
		p.ask(t, question{&n.Namespace, at(f.outside, anyPort), "outside saw " + f.host.String()})
		p.ask(t, question{&n.outside.Namespace, at(f.container(n.peer), anyPort), "peer saw " + f.outside.String()})
		return ""
	}},
}

// testLocalhost asks by 127.0.0.1. By [::1] no packet can leave the loopback
// link: the kernel has no route_localnet for IPv6.
func testLocalhost(t *testing.T, n *node, p protocol, f family) string {
	to := at(f.loopback, anyPort)
	if f.loopback.Is4() {
		p.ask(t, question{&n.Namespace, to, "web saw " + f.gateway.String()})
		return ""
	}
	p.serve(t, &n.Namespace, to)
	if n.backend.flavour == "" {
		p.ask(t, question{&n.Namespace, to, "host saw ::1"})
		return "[::1] stays the host's own"
	}
	p.refused(t, &n.Namespace, to)
	return "[::1] does not answer"
}
