package iptables

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// eachReference runs a test for each flavour and version of the reference plugins.
func eachReference(t *testing.T, test func(t *testing.T, n *node, dir string)) {
	for version, dir := range map[string]func(testing.TB) string{"current": netlab.Reference, "debian": netlab.Debian} {
		t.Run(version, func(t *testing.T) {
			eachFlavour(t, func(t *testing.T, n *node) { test(t, n, dir(t)) })
		})
	}
}

// attachments returns the lines of rules that are one attachment's: of containers' chains, and of its addresses.
func attachments(text string) string {
	own := regexp.MustCompile(`CNI-(DN-|SN-)?[0-9a-f]{21,24}|10\.88\.0\.2/32|fd00::2/128`)
	return leaving(text, func(line string) bool { return !own.MatchString(line) })
}

// What the reference plugins make is equal to the letter, and each can check and remove what the other has made.
func (n *node) compare(t *testing.T, r Rules, call func(command string)) {
	t.Helper()
	table, hint := r.owner.kind.table(), prefixes("10.88.0.2/16", "fd00::2/64")
	call("ADD")
	theirs := n.both(t, table)
	must(t, n.check(t, r))
	same(t, "CHECK changes nothing", n.both(t, table), theirs)
	if ports := n.del(t, r.owner.kind, r.owner.key, hint...); len(ports) != len(r.ports.Maps) {
		t.Errorf("removed %v", ports)
	}
	same(t, "left of theirs", attachments(n.both(t, table)), "")
	for _, f := range families() {
		n.restoreOf(t, f, table, "-F", "-X")
	}
	n.add(t, r)
	same(t, "ours", n.both(t, table), theirs)
	call("CHECK")
	call("ADD")
	same(t, "both", n.both(t, table), theirs)
	n.add(t, r)
	same(t, "both and again", sorted(n.both(t, table)), sorted(theirs))
	call("DEL")
	same(t, "left of ours", attachments(n.both(t, table)), "")
	n.del(t, r.owner.kind, r.owner.key)
	same(t, "records", n.kept(t), "")
}

func TestReference(t *testing.T) {
	longID := strings.Repeat("0123456789abcdef", 16)
	port := func(more string) string {
		return `"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,` + more + `}]}`
	}
	firewall := `"type":"firewall","backend":"iptables"`
	both := addrs("10.88.0.2", "fd00::2")
	plain, bare, another := publish(t, "tcp/8080=10.88.0.2:80", "tcp/8080=[fd00::2]:80"), publish(t, "sctp/8080=10.88.0.2:80", "sctp/8080=[fd00::2]:80"), publish(t, "udp/8080=10.88.0.2:80", "udp/8080=[fd00::2]:80")
	bare.SNAT, bare.Conditions4, bare.Conditions6 = false, []string{"!", "-s", "192.0.2.0/24"}, []string{"!", "-i", "lo"}
	another.MarkBit = 0
	for _, tt := range []struct {
		name, config string
		rules        Rules
	}{
		{"ports", port(`"protocol":"tcp"},{"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"192.0.2.1"`),
			PortMapRules(keyOf("a"), publish(t, "tcp/8080=10.88.0.2:80", "udp/192.0.2.1:53=10.88.0.2:53", "tcp/8080=[fd00::2]:80"))},
		{"longest id in a comment", port(`"protocol":"tcp"`), PortMapRules(keyOf(longID[:232]), plain)},
		{"longer id, which is cut", port(`"protocol":"tcp"`), PortMapRules(keyOf(longID[:233]), plain)},
		{"no snat, conditions", `"snat":false,"conditionsV4":["!","-s","192.0.2.0/24"],"conditionsV6":["!","-i","lo"],` + port(`"protocol":"sctp"`), PortMapRules(keyOf("a"), bare)},
		{"another mark", `"markMasqBit":0,` + port(`"protocol":"udp"`), PortMapRules(keyOf("a"), another)},
		{"open", firewall, ForwardRules(keyOf("a"), spec.ForwardNeeds{Addrs: both})},
		{"admin chain", firewall + `,"iptablesAdminChainName":"MINE"`, ForwardRules(keyOf("a"), spec.ForwardNeeds{Addrs: both, AdminChain: "MINE"})},
		{"same-bridge", firewall + `,"ingressPolicy":"same-bridge"`, ForwardRules(keyOf("a"), spec.ForwardNeeds{Addrs: both, Ingress: spec.SameBridge, Bridge: "br0"})},
		{"isolated", firewall + `,"ingressPolicy":"isolated"`, ForwardRules(keyOf("a"), spec.ForwardNeeds{Addrs: both, Ingress: spec.Isolated, Bridge: "br0"})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachReference(t, func(t *testing.T, n *node, dir string) {
				isOld, key := dir == netlab.Debian(t), tt.rules.owner.key
				if isOld && strings.Contains(tt.config, "ingressPolicy") {
					return // 1.1.1 has other comments, and no policy isolated
				}
				name := map[Kind]string{PortMapping: "portmap", Forwarding: "firewall"}[tt.rules.owner.kind]
				config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net",%s,"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/run/netns/pod"}],
					"ips":[{"address":"10.88.0.2/16","interface":1},{"address":"fd00::2/64","interface":1}]}}`, tt.config)
				n.compare(t, tt.rules, func(command string) {
					t.Helper()
					if isOld && command == "CHECK" && name == "portmap" {
						return // which always fails for two families
					}
					call := netlab.PluginCall{Command: command, ContainerID: key.ContainerID, Netns: "/run/netns/pod", IfName: key.IfName, Path: "/opt/cni/bin", Config: config}
					if r := n.Exec(t, dir+"/"+name, call); r.ExitCode != 0 {
						t.Fatalf("%s %s: %s", command, name, r)
					}
				})
			})
		})
	}
}

// A port that the reference plugin has published is taken, and the error names the container.
func TestPortTakenByReference(t *testing.T) {
	eachReference(t, func(t *testing.T, n *node, dir string) {
		config := `{"cniVersion":"1.0.0","name":"net","type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]},
			"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/pod"}],"ips":[{"address":"10.88.0.2/16","interface":0}]}}`
		call := netlab.PluginCall{Command: "ADD", ContainerID: "a", Netns: "/run/netns/pod", IfName: "eth0", Path: "/opt/cni/bin", Config: config}
		if r := n.Exec(t, dir+"/portmap", call); r.ExitCode != 0 {
			t.Fatal(r)
		}
		err := n.tryAdd(t, PortMapRules(keyOf("b"), publish(t, "tcp/8080=10.88.0.9:80")))
		wantError(t, err, "host port tcp/8080 is already published by net/a/eth0")
		if !plugin.IsTryAgain(err) {
			t.Errorf("it has the code %d", plugin.AsError(err).Code)
		}
	})
}
