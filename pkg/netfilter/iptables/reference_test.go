package iptables

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// eachReference runs a test for each flavour and version of the reference
// plugins.
func eachReference(t *testing.T, test func(t *testing.T, n *node, dir string)) {
	for version, dir := range map[string]func(testing.TB) string{"current": netlab.Reference, "debian": netlab.Debian} {
		t.Run(version, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, n *node) { test(t, n, dir(t)) })
		})
	}
}

// prevResult is what a plugin before portmap and firewall answered.
const prevResult = `{"cniVersion":"1.0.0","interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/run/netns/pod"}],
	"ips":[{"address":"10.88.0.2/16","interface":1},{"address":"fd00::2/64","interface":1}]}`

// reference runs a plugin of the reference and wants it to succeed.
func (n *node) reference(t *testing.T, command, path string, key plugin.Key, config string) {
	t.Helper()
	if r := n.exec(t, command, path, key, config); r.ExitCode != 0 {
		t.Fatalf("%s %s: %s", command, path, r)
	}
}

func (n *node) exec(t *testing.T, command, path string, key plugin.Key, config string) netlab.PluginResult {
	t.Helper()
	if !json.Valid([]byte(config)) {
		t.Fatalf("configuration: %s", config)
	}
	return n.Exec(t, path, netlab.PluginCall{Command: command, ContainerID: key.ContainerID, Netns: "/run/netns/pod", IfName: key.IfName, Path: "/opt/cni/bin", Config: config})
}

func (n *node) both(t *testing.T, table string) string {
	t.Helper()
	return n.rules(t, &ipv4, table) + n.rules(t, &ipv6, table)
}

// What both make is equal to the letter, and each can check and remove what the
// other has made.
func TestPortMapsOfReference(t *testing.T) {
	longID := strings.Repeat("0123456789abcdef", 16)
	for _, tt := range []struct {
		name, id, config, mappings string
		set                        func(*netfilter.PortMaps)
		maps                       []string
	}{
		{"snat", "a", "", `{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"192.0.2.1"}`, nil,
			[]string{"tcp/8080=10.88.0.2:80", "udp/192.0.2.1:53=10.88.0.2:53", "tcp/8080=[fd00::2]:80"}},
		{"long id", longID, "", `{"hostPort":8080,"containerPort":80,"protocol":"tcp"}`, nil, []string{"tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80"}},
		{"no snat, conditions", "a", `"snat":false,"conditionsV4":["!","-s","192.0.2.0/24"],"conditionsV6":["!","-i","lo"],`, `{"hostPort":8080,"containerPort":80,"protocol":"sctp"}`,
			func(p *netfilter.PortMaps) {
				p.SNAT, p.Conditions4, p.Conditions6 = false, []string{"!", "-s", "192.0.2.0/24"}, []string{"!", "-i", "lo"}
			}, []string{"sctp/8080=10.88.0.2:80", "sctp/8080=[fd00::2]:80"}},
		{"another mark", "a", `"markMasqBit":0,`, `{"hostPort":8080,"containerPort":80,"protocol":"tcp"}`,
			func(p *netfilter.PortMaps) { p.MarkBit = 0 }, []string{"tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachReference(t, func(t *testing.T, n *node, dir string) {
				path, key := dir+"/portmap", keyOf(tt.id)
				config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"portmap",%s"runtimeConfig":{"portMappings":[%s]},"prevResult":%s}`, tt.config, tt.mappings, prevResult)
				ports := publish(t, tt.maps...)
				if tt.set != nil {
					tt.set(&ports)
				}
				n.reference(t, "ADD", path, key, config)
				theirs := n.both(t, "nat")
				n.do(t, func() error { return New().CheckPortMaps(ctx, key, ports) })
				other := ports
				other.Maps = []netfilter.PortMap{ports.Maps[0]}
				other.Maps[0].Container = netip.MustParseAddrPort("10.88.0.9:80")
				err := n.try(func() error { return New().AddPortMaps(ctx, keyOf("other"), other) })
				wantError(t, err, "host port "+ports.Maps[0].String()+" is already published by ")
				if tt.id == "a" {
					wantError(t, err, "net/a/eth0")
				}
				removed := n.unmap(t, key)
				if len(removed) != len(ports.Maps) {
					t.Errorf("removed %v", removed)
				}
				same(t, "left of theirs", containers(n.both(t, "nat")), "")
				n.restore(t, "nat", "-F", "-X")
				n.Feed(t, "*nat\n-F\n-X\nCOMMIT\n", "ip6tables-"+n.flavour+"-restore", "--noflush")

				n.portmap(t, tt.id, ports)
				same(t, "ours", n.both(t, "nat"), theirs)
				if dir != netlab.Debian(t) { // whose CHECK of two families always fails
					n.reference(t, "CHECK", path, key, config)
				}
				n.reference(t, "ADD", path, key, config)
				same(t, "both", n.both(t, "nat"), theirs)
				n.portmap(t, tt.id, ports)
				same(t, "both and again", n.both(t, "nat"), theirs)
				n.reference(t, "DEL", path, key, config)
				same(t, "left of ours", containers(n.both(t, "nat")), "")
				n.unmap(t, key)
				same(t, "records", n.kept(t), "")
			})
		})
	}
}

// containers returns the lines that are about containers' chains.
func containers(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, portsPrefix) || strings.Contains(line, "POSTROUTING -s") || Masquerading.isChain(strings.Trim(line, ":\n")) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestForwardOfReference(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		f            netfilter.Forward
	}{
		{"open", "", netfilter.Forward{Addrs: addrs("10.88.0.2", "fd00::2")}},
		{"admin chain", `"iptablesAdminChainName":"MINE",`, netfilter.Forward{Addrs: addrs("10.88.0.2", "fd00::2"), AdminChain: "MINE"}},
		{"same-bridge", `"ingressPolicy":"same-bridge",`, netfilter.Forward{Addrs: addrs("10.88.0.2", "fd00::2"), Ingress: netfilter.SameBridge, Bridge: "br0"}},
		{"isolated", `"ingressPolicy":"isolated",`, netfilter.Forward{Addrs: addrs("10.88.0.2", "fd00::2"), Ingress: netfilter.Isolated, Bridge: "br0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachReference(t, func(t *testing.T, n *node, dir string) {
				if tt.f.Ingress != netfilter.Open && dir == netlab.Debian(t) {
					return // 1.1.1 has other comments, and no policy isolated
				}
				path, key := dir+"/firewall", keyOf("a")
				config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"firewall","backend":"iptables",%s"prevResult":%s}`, tt.config, prevResult)
				n.reference(t, "ADD", path, key, config)
				theirs := n.both(t, "filter")
				n.do(t, func() error { return New().CheckForward(ctx, key, tt.f) })
				same(t, "CHECK changes nothing", n.both(t, "filter"), theirs)
				n.unforward(t, "a", prefixes("10.88.0.2/16", "fd00::2/64")...)
				shared := n.both(t, "filter")
				same(t, "left of theirs", shared, withoutAddresses(theirs))
				n.restore(t, "filter", "-F", "-X")
				n.Feed(t, "*filter\n-F\n-X\nCOMMIT\n", "ip6tables-"+n.flavour+"-restore", "--noflush")

				n.forward(t, "a", tt.f)
				same(t, "ours", n.both(t, "filter"), theirs)
				n.reference(t, "CHECK", path, key, config)
				n.reference(t, "ADD", path, key, config)
				same(t, "both", n.both(t, "filter"), theirs)
				n.reference(t, "DEL", path, key, config)
				same(t, "left of ours", n.both(t, "filter"), shared)
				n.unforward(t, "a")
				same(t, "left of both", withoutAddresses(n.both(t, "filter")), n.both(t, "filter"))
				same(t, "records", n.kept(t), "")
			})
		})
	}
}

func withoutAddresses(text string) string {
	return leaving(text, func(line string) bool {
		return strings.Contains(line, "10.88.0.2/32") || strings.Contains(line, "fd00::2/128")
	})
}

func leaving(text string, drop func(string) bool) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !drop(line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestMasqueradeOfReference(t *testing.T) {
	eachReference(t, func(t *testing.T, n *node, dir string) {
		n.InstallFrom(t, netlab.Debian(t), "static")
		pod := n.NewPod(t, "pod")
		config := `{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0","ipMasq":true,"isGateway":true,
			"ipam":{"type":"static","addresses":[{"address":"10.88.0.2/16"},{"address":"fd00::2/64"}]}}`
		call := func(command string) {
			t.Helper()
			if r := n.Exec(t, dir+"/bridge", pod.Call(command, config)); r.ExitCode != 0 {
				t.Fatalf("%s: %s", command, r)
			}
		}
		dual := prefixes("10.88.0.2/16", "fd00::2/64")
		key := plugin.Key{Network: "net", ContainerID: pod.ID, IfName: "eth0"}
		add := func() error { return New().AddMasquerade(ctx, key, dual) }
		del := func() error { return New().DelMasquerade(ctx, key, nil) }
		call("ADD")
		theirs := n.both(t, "nat")
		n.do(t, func() error { return New().CheckMasquerade(ctx, key, dual) })
		n.do(t, del)
		same(t, "left of theirs", n.both(t, "nat"), "")
		n.do(t, add)
		same(t, "ours", n.both(t, "nat"), theirs)
		call("DEL") // of the namespace's addresses
		same(t, "left of ours", n.both(t, "nat"), "")
		n.do(t, del)
		same(t, "records", n.kept(t), "")
	})
}
