package firewall

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// proxy is a mode of kube-proxy: what it does with the port of a Service on an
// address of the node, as far as packets can tell.
type proxy struct {
	name    string
	flavour string // of iptables; "" is nftables
}

var proxies = []proxy{
	{"iptables-nft", "nft"},
	{"iptables-legacy", "legacy"},
	{"nftables", ""},
}

// orders are whether the rules of kube-proxy were there before the plugins
// made theirs.
var orders = []string{"first", "last"}

// testService gives the node's first address and a port that web publishes to a
// Service, and asks who answers.
func testService(t *testing.T, b backend, kube proxy, order string) {
	n := newNode(t, b, false)
	conflist := network(b, podsBridge)
	if order == "first" {
		kube.install(t, n.Host)
	}
	service := attach(t, n.Host, conflist, "service")
	for _, f := range families {
		if got := f.container(service); got != f.gateway.Next() {
			t.Fatalf("the first pod has %v: the rules of kube-proxy are for %v", got, f.gateway.Next())
		}
	}
	n.attach(t, conflist)
	if order == "last" {
		for _, f := range families { // to know that it is the Service that changes this
			protocols[0].ask(t, question{&n.outside.Namespace, at(f.host, anyPort), "web saw"})
		}
		kube.install(t, n.Host)
	}
	winner := "service"
	if b.flavour != "" && b.flavour != kube.flavour && order == "first" {
		winner = "web" // no promise: of nat chains with one priority the one that was made last has the first look at a packet
	}
	for _, p := range protocols {
		if p.available(t) {
			service.serve(t, p, webPort)
		}
	}
	n.testAll(t, []path{{"answers", []string{
		"outside host:8080 = " + winner + " saw", "host host:8080 = " + winner + " saw", "peer host:8080 = " + winner + " saw",
		"outside second:8080 = web saw outside", // the Service has no port there
	}}})
}

// install makes the rules of a Service that has anyPort on the node's first
// addresses and one endpoint, the pod with the first address of the pods' bridge.
func (p proxy) install(t testing.TB, host *netlab.Host) {
	t.Helper()
	for _, f := range families {
		if p.flavour == "" {
			host.Feed(t, nftablesService(f), "nft", "-f", "-")
			continue
		}
		host.Feed(t, iptablesService(f), f.iptables+"-"+p.flavour+"-restore", "--noflush", "--wait")
	}
}

func iptablesService(f family) string {
	var rules strings.Builder
	for _, p := range protocols {
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %[1]v -p %[2]s -m %[2]s --dport %[3]d -j KUBE-EXT\n", f.host, p.name, anyPort)
		fmt.Fprintf(&rules, "-A KUBE-EXT -p %[1]s -m %[1]s -j DNAT --to-destination %[2]s\n", p.name, at(f.gateway.Next(), webPort))
	}
	return fmt.Sprintf(`*nat
:KUBE-SERVICES - [0:0]
:KUBE-EXT - [0:0]
:KUBE-POSTROUTING - [0:0]
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-EXT -j MARK --or-mark 0x4000
%s-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE
COMMIT
`, &rules)
}

func nftablesService(f family) string {
	network, kind := "ip", "ipv4_addr"
	if f.name == "v6" {
		network, kind = "ip6", "ipv6_addr"
	}
	var elements, chains strings.Builder
	for _, p := range protocols {
		fmt.Fprintf(&elements, "%v . %s . %d : goto external-%s,", f.host, p.name, anyPort, p.name)
		fmt.Fprintf(&chains, "\tchain external-%[1]s {\n\t\tjump mark-for-masquerade\n\t\tmeta l4proto %[1]s dnat to %[2]s\n\t}\n",
			p.name, at(f.gateway.Next(), webPort))
	}
	return fmt.Sprintf(`table %[1]s kube-proxy {
	chain mark-for-masquerade {
		meta mark set meta mark or 0x4000
	}
%[2]s	map service-ips {
		type %[4]s . inet_proto . inet_service : verdict
		elements = { %[3]s }
	}
	chain services {
		%[1]s daddr . meta l4proto . th dport vmap @service-ips
	}
	chain nat-prerouting {
		type nat hook prerouting priority -100
		jump services
	}
	chain nat-output {
		type nat hook output priority -100
		jump services
	}
	chain nat-postrouting {
		type nat hook postrouting priority 100
		meta mark and 0x4000 == 0 return
		meta mark set meta mark xor 0x4000
		masquerade fully-random
	}
}
`, network, &chains, strings.TrimSuffix(elements.String(), ","), kind)
}
