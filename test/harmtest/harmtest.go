// Package harmtest attaches containers to hosts of test/netlab, and takes from them what cnictl repair and the agent put back.
package harmtest

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// OfRepair begin the lines of a snapshot that tell of what a repair has for itself.
var OfRepair = []string{"file /run/cnibox", "file /run/xtables.lock", "file /run/firewalld.log"}

// Harm is something that is done to a network, and to one container's attachment.
type Harm struct {
	Name    string
	Network string // plugins of its list
	Host    string // a shell script on the host, in which END is the host end, IFB its ifb, and ADDRESS the container's
	Inside  string // one in the container
	Finds   string // what repair says is missing
	Prepare string // a shell script on the host before ADD
	Silent  bool   // no event tells of it
	Needs   *netlab.Feature
}

// Do does it.
func (h Harm) Do(t testing.TB, host *netlab.Host, c *Container) {
	t.Helper()
	Script(t, &host.Namespace, c.names().Replace(h.Host))
	Script(t, &c.Namespace, c.names().Replace(h.Inside))
}

// Plugins of lists.
const (
	ipamKeys = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]], "routes": [{"dst": "10.99.0.0/16"}]}`
	Bridge   = `{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, ` + ipamKeys + `}`
	Ports    = `{"type": "portmap", "capabilities": {"portMappings": true}}`
	Usual    = Bridge + "," + Ports
	Ptp      = `{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]],
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},` + Ports
	Old = `{"type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", ` + ipamKeys + `},
		{"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}`
	Limited = Usual + `, {"type": "bandwidth", "ingressRate": 80000000, "ingressBurst": 8000000, "egressRate": 80000000, "egressBurst": 8000000}`
	Listed  = Usual + `, {"type": "egress", "allow": ["192.0.2.0/24", "2001:db8::/32", "10.88.0.0/24:1-65535", "fd00:88::/64"], "deny": ["192.0.2.200"]}`
	Tuned   = Usual + `, {"type": "tuning", "mtu": 1400, "txQLen": 500, "allmulti": true, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}`
	Sourced = Usual + `, {"type": "sbr", "addSourceHints": true}`

	// DropForwarded is a host that forwards nothing by itself, in the way of Docker.
	DropForwarded = "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP"
)

// With is Usual with more keys of bridge.
func With(keys string) string {
	return strings.Replace(Usual, `"bridge",`, `"bridge", `+keys+`,`, 1)
}

// Guarded is Usual with the firewall plugin.
func Guarded(backend string) string {
	return strings.ReplaceAll(Usual+`, {"type": "firewall", "backend": "BACKEND"}`, "BACKEND", backend)
}

// Conflist is the network demo with these plugins.
func Conflist(plugins string) string {
	return `{"cniVersion": "1.1.0", "name": "demo", "plugins": [` + plugins + `]}`
}

// Entered is Conflist of a network that has repaired what is in its containers, too.
func Entered(plugins string) string {
	return strings.Replace(Conflist(plugins), `"name"`, `"repair": "all", "name"`, 1)
}

// List is the network of a harm, which lets what it does be repaired.
func (h Harm) List() string {
	if h.Inside == "" {
		return Conflist(h.Network)
	}
	return Entered(h.Network)
}
