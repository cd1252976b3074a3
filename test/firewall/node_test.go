package firewall

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// family is a family of addresses and what the node has of it.
type family struct {
	name      string
	iptables  string     // the program of the family
	host      netip.Addr // the node's address
	second    netip.Addr // another one
	outside   netip.Addr
	loopback  netip.Addr
	gateway   netip.Addr // the node's address on the pods' bridge
	container func(*container) netip.Addr
}

var families = []family{
	{
		name:      "v4",
		iptables:  "iptables",
		host:      netip.MustParseAddr(netlab.HostIPv4),
		second:    netip.MustParseAddr("192.0.2.7"),
		outside:   netip.MustParseAddr(netlab.OutsideIPv4),
		loopback:  netip.MustParseAddr("127.0.0.1"),
		gateway:   netip.MustParseAddr("10.88.0.1"),
		container: func(c *container) netip.Addr { return c.v4 },
	},
	{
		name:      "v6",
		iptables:  "ip6tables",
		host:      netip.MustParseAddr(netlab.HostIPv6),
		second:    netip.MustParseAddr("2001:db8:2::7"),
		outside:   netip.MustParseAddr(netlab.OutsideIPv6),
		loopback:  netip.MustParseAddr("::1"),
		gateway:   netip.MustParseAddr("fd00:88::1"),
		container: func(c *container) netip.Addr { return c.v6 },
	},
}

// at returns address:port for either family.
func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// bridgeKeys are of the bridge of a network, which differ from one to the other.
type bridgeKeys struct {
	bridge, subnet4, subnet6 string
	hairpin                  bool
	guarded                  bool   // against forged MAC addresses, and by the plugin firewall
	behind                   string // more plugins, each behind a comma
}

var (
	podsBridge  = bridgeKeys{bridge: "cni0", subnet4: "10.88.0.0/16", subnet6: "fd00:88::/64"}
	otherBridge = bridgeKeys{bridge: "cni1", subnet4: "10.99.0.0/16", subnet6: "fd00:99::/64"}
)

// network returns the conflist of a dual-stack network that is masqueraded and
// publishes ports, all with one backend.
func network(b backend, k bridgeKeys) string {
	firewall := ""
	if k.guarded {
		firewall = fmt.Sprintf(`, {"type": "firewall", "backend": "%s", "ingressPolicy": "same-bridge"}`, b.config)
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "net-%[1]s",
  "plugins": [
    {"type": "bridge", "bridge": "%[1]s", "isDefaultGateway": true, "hairpinMode": %[2]v, "macspoofchk": %[6]v, "ipMasq": true, "ipMasqBackend": "%[3]s",
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "%[4]s"}], [{"subnet": "%[5]s"}]]}},
    {"type": "portmap", "backend": "%[3]s", "capabilities": {"portMappings": true}}%[7]s%[8]s
  ]
}`, k.bridge, k.hairpin, b.config, k.subnet4, k.subnet6, k.guarded, firewall, k.behind)
}

// newHost returns a host on which the plugins are.
func newHost(t testing.TB, b backend) *netlab.Host {
	t.Helper()
	host := netlab.NewHost(t)
	install(t, host, "bridge", "host-local", "portmap", "firewall")
	if b.flavour != "" {
		host.UseIPTables(t, b.flavour)
	}
	return host
}

// container is an attached pod.
type container struct {
	*netlab.Pod
	caps   map[string]any
	v4, v6 netip.Addr
}

// attach makes a pod and attaches it; the test fails if it can't be.
func attach(t testing.TB, host *netlab.Host, conflist, name string, ports ...port) *container {
	t.Helper()
	c := &container{Pod: host.NewPod(t, name), caps: map[string]any{"portMappings": ports}}
	if err := c.add(host, conflist); err != nil {
		t.Fatal(err)
	}
	return c
}

// add calls ADD.
func (c *container) add(host *netlab.Host, conflist string) error {
	result, err := host.AddList(conflist, c.RuntimeConf(c.caps))
	if err != nil {
		return fmt.Errorf("ADD %s: %w", c.Name(), err)
	}
	c.v4, c.v6 = netlab.Addresses(result)
	return nil
}

// del calls DEL.
func (c *container) del(host *netlab.Host, conflist string) error {
	if err := host.DelList(conflist, c.RuntimeConf(c.caps)); err != nil {
		return fmt.Errorf("DEL %s: %w", c.Name(), err)
	}
	return nil
}

// serve has the container answer on a port, by its own addresses.
func (c *container) serve(t testing.TB, p protocol, port uint16) {
	t.Helper()
	for _, a := range []netip.Addr{c.v4, c.v6} {
		p.serve(t, &c.Namespace, at(a, port))
	}
}

// port is a port mapping as runtimes write it.
type port struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// question is one connection and who has to answer it, and whom that one sees:
// "web saw 192.0.2.1". What is left out of the end does not matter.
type question struct {
	from   *netlab.Namespace
	target string
	want   string
}

// ask asks a question, once.
func (p protocol) ask(t testing.TB, q question) {
	t.Helper()
	answer, err := p.dial(q.from, q.target, netlab.Patience)
	if err != nil || answer != q.want && !strings.HasPrefix(answer, strings.TrimSuffix(q.want, " ")+" ") {
		t.Errorf("%s from %s to %s: %q, %v; want %q", p.name, q.from.Name(), q.target, answer, err, q.want)
	}
}

// refused makes sure that nobody answers.
func (p protocol) refused(t testing.TB, from *netlab.Namespace, target string) {
	t.Helper()
	if answer, err := p.dial(from, target, silence); err == nil {
		t.Errorf("%s from %s to %s: %q; want no answer", p.name, from.Name(), target, answer)
	}
}
