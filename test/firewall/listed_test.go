package firewall

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// allow is the plugin with a list that has one port of one machine, by each protocol.
func allow(a4, a6 netip.Addr, port uint16) string {
	return fmt.Sprintf(`, {"type": "egress", "allow": ["%s", "%[1]s/sctp", "%s", "%[2]s/sctp"]}`, at(a4, port), at(a6, port))
}

// listedPaths are of published ports, masquerading and the list of a container, in the words of path. Nobody else on the node changes what comes of them.
var listedPaths = []path{{"list", []string{
	"outside host:8080 = web saw outside", "outside second:8080 = web saw outside", "outside host:9090 = web saw outside",
	"host host:8080 = web saw host", "v4: host loopback:8080 = web saw gateway", "host web:80 = web saw gateway",
	"v4: host loopback:9191 = web saw gateway", "outside host:9191 = nobody", // published on 127.0.0.1
	"remote host:8080 = web saw gateway", // a container without a list asks for a published port
	"web outside:8080 = outside saw host",
	"remote outside:80 = outside saw host",

	"web outside:80 = nobody",                                                     // another port
	"web host:80 = nobody", "web gateway:80 = nobody", "web second:9090 = nobody", // the node
	"web peer:8080 = nobody", "peer web:80 = nobody", // neighbours
	"web remote:80 = nobody", "web second:7070 = nobody", "web host:7070 = nobody", // another network, and what it has published
	"web host:8080 = nobody", "peer host:8080 = nobody", "peer second:8080 = nobody", // what is published of the list's own network
}}}

// neighbour is a program that has rules of its own on the node.
type neighbour struct {
	name   string
	drops  bool                                  // what the plugin firewall does not let through
	begin  func(t *testing.T, host *netlab.Host) // before containers come
	change func(t *testing.T, host *netlab.Host) // when they run; nil is for nothing
}

// firewalld has the containers' networks in a zone, and is loaded again.
func firewalld(with string) neighbour {
	var daemon *firewalldtest.Daemon
	return neighbour{"firewalld with " + with, false,
		func(t *testing.T, host *netlab.Host) {
			daemon = firewalldtest.Start(t, host, with)
			for _, subnet := range []string{podsBridge.subnet4, podsBridge.subnet6, otherBridge.subnet4, otherBridge.subnet6} {
				host.MustRun(t, "firewall-cmd", "--permanent", "--zone=trusted", "--add-source="+subnet)
			}
			daemon.Reload(t)
		},
		func(t *testing.T, _ *netlab.Host) { daemon.Reload(t) }}
}

func neighbours() []neighbour {
	return []neighbour{
		{"nobody", false, func(*testing.T, *netlab.Host) {}, nil},
		{"Docker's rules", true, func(t *testing.T, host *netlab.Host) {
			for _, f := range families {
				host.Feed(t, dockerRules, f.iptables+"-nft-restore", "--noflush")
			}
		}, nil},
		{"ufw", true, func(t *testing.T, host *netlab.Host) {
			host.MustRun(t, "sh", "-ec", `mkdir -p /run/own/etc /run/own/work
				mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/own/etc,workdir=/run/own/work /etc
				ufw --force enable; ufw allow in on cni0; ufw allow in on cni1`)
		}, func(t *testing.T, host *netlab.Host) { host.MustRun(t, "ufw", "reload") }},
		firewalld("nftables"),
		firewalld("iptables"),
		{"rules that accept everything", false, func(t *testing.T, host *netlab.Host) {
			for _, hook := range []string{"prerouting", "input", "forward", "output", "postrouting"} {
				host.Feed(t, fmt.Sprintf("table inet own {\n\tchain %[1]s {\n\t\ttype filter hook %[1]s priority -400; policy accept;\n\t\taccept\n\t}\n}\n", hook), "nft", "-f", "-")
			}
		}, func(t *testing.T, host *netlab.Host) {
			for _, f := range families {
				for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
					host.MustRun(t, f.iptables+"-nft", "-I", chain, "-j", "ACCEPT")
				}
			}
		}},
	}
}

// dockerRules are those of Docker 28 without a container.
const dockerRules = `*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-BRIDGE - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER ! -i docker0 -o docker0 -j DROP
-A DOCKER-BRIDGE -o docker0 -j DOCKER
-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
COMMIT
`

// TestListed has containers with a list beside those programs. What the list has works, published ports and masquerading do, and nothing else is
// open: a drop is the last word, and no rule of others opens it.
func TestListed(t *testing.T) {
	b, v4, v6 := backends[0], families[0], families[1]
	for _, w := range neighbours() {
		t.Run("beside "+w.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, b, false)
			n.InstallPlugins(t, "egress")
			w.begin(t, n.Host)
			pods, other := podsBridge, otherBridge
			if w.drops {
				other.behind = `, {"type": "firewall"}`
			}
			pods.behind = other.behind + allow(v4.outside, v6.outside, anyPort)
			conflist := network(b, pods)
			n.attach(t, conflist)
			remote := attach(t, n.Host, network(b, other), "remote", port{7070, webPort, "tcp", ""}, port{7070, webPort, "udp", ""})
			n.pods["remote"] = remote
			for _, p := range protocols {
				if p.available(t) {
					remote.serve(t, p, webPort)
					for _, f := range families {
						p.serve(t, &n.outside.Namespace, at(f.outside, webPort))
					}
				}
			}
			t.Run("first", func(t *testing.T) { n.testAll(t, listedPaths) })
			if w.change == nil {
				return
			}
			w.change(t, n.Host)
			t.Run("then", func(t *testing.T) { n.testAll(t, listedPaths) })
			for _, c := range []*container{n.pods["web"], n.pods["peer"]} {
				if err := n.CheckList(conflist, c.RuntimeConf(c.caps)); err != nil {
					t.Errorf("CHECK: %v", err)
				}
			}
		})
	}
}

// TestListedService has containers ask for a Service of Kubernetes: it is open for who has its pod in the list, and for nobody else.
func TestListedService(t *testing.T) {
	t.Parallel()
	b := backends[0]
	for _, kube := range proxies {
		t.Run("kube-proxy "+kube.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, b, false)
			n.InstallPlugins(t, "egress")
			kube.install(t, n.Host)
			service := attach(t, n.Host, network(b, podsBridge), "service")
			may, shut := otherBridge, otherBridge
			may.behind, shut.behind = allow(service.v4, service.v6, webPort), allow(families[0].host, families[1].host, anyPort)
			n.pods = map[string]*container{"service": service, "may": attach(t, n.Host, network(b, may), "may"), "shut": attach(t, n.Host, network(b, shut), "shut")}
			for _, p := range protocols {
				if p.available(t) {
					service.serve(t, p, webPort)
				}
			}
			n.testAll(t, []path{{"answers", []string{
				"outside host:8080 = service saw",
				"may host:8080 = service saw", "may service:80 = service saw",
				"shut host:8080 = nobody", // it has the Service's address, which is not where the packet goes
				"shut service:80 = nobody",
			}}})
		})
	}
}
