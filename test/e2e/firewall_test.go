package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// guarded is a dual-stack network on a bridge of its own, masqueraded, with
// published ports. The keys are of a firewall entry; "" is to have none.
func guarded(bridge string, subnet int, firewall string) string {
	if firewall != "" {
		firewall = `, {"type": "firewall"` + firewall + `}`
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "net-%[1]s",
  "plugins": [
    {"type": "bridge", "bridge": "%[1]s", "isDefaultGateway": true, "ipMasq": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.%[2]d.0.0/24"}], [{"subnet": "fd00:%[2]d::/64"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}%[3]s
  ]
}`, bridge, subnet, firewall)
}

// ofStore begin the lines of a snapshot that tell of what all attachments share
// or leave on purpose.
func ofStore(bridges ...string) []string {
	ignored := []string{"file /var/lib/cni/networks drwx", "file /var/lib/cni/networks/.cnibox", "file /run/cnibox", "file /run/xtables.lock"}
	for _, b := range bridges {
		dir := "file /var/lib/cni/networks/net-" + b
		ignored = append(ignored, dir+" drwx", dir+"/lock", dir+"/last_reserved_ip")
	}
	return ignored
}

// dockerRules and ufwRules are what the two have in table filter, in short.
const (
	dockerRules = `*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
`
	ufwRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:ufw-before-forward - [0:0]
:ufw-user-forward - [0:0]
:ufw-after-forward - [0:0]
:ufw-reject-forward - [0:0]
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-after-forward
-A FORWARD -j ufw-reject-forward
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
-A ufw-reject-forward -j REJECT
COMMIT
`
)

// path is a connection that is tried.
type path struct {
	name string
	from *netlab.Namespace
	to   string
}

// flows makes sure that connections come through.
func flows(t *testing.T, when string, paths []path) {
	t.Helper()
	for _, p := range paths {
		if reply, err := p.from.DialTCP(p.to, netlab.Patience); err != nil {
			t.Errorf("%s, %s: %s to %s: %v %q", when, p.name, p.from.Name(), p.to, err, reply)
		}
	}
}

// stuck makes sure that they do not. All are tried at the same time.
func stuck(t *testing.T, when string, paths []path) {
	t.Helper()
	answers := make(chan string, len(paths))
	for _, p := range paths {
		go func() {
			reply, err := p.from.DialTCP(p.to, silence)
			if err != nil {
				answers <- ""
				return
			}
			answers <- fmt.Sprintf("%s, %s: %s to %s answers %q", when, p.name, p.from.Name(), p.to, reply)
		}()
	}
	for range paths {
		if answer := <-answers; answer != "" {
			t.Error(answer)
		}
	}
}

var (
	hostV4, hostV6 = netip.MustParseAddr(netlab.HostIPv4), netip.MustParseAddr(netlab.HostIPv6)
	outV4, outV6   = netip.MustParseAddr(netlab.OutsideIPv4), netip.MustParseAddr(netlab.OutsideIPv6)
)

// TestForwardDrop has a host that drops what it is to forward, as Docker and ufw
// make it. Without the plugin nothing gets through; with it all does that should.
func TestForwardDrop(t *testing.T) {
	t.Parallel()
	for _, rules := range []struct{ name, text string }{{"docker", dockerRules}, {"ufw", ufwRules}} {
		for _, flavour := range []string{"nft", "legacy"} {
			for _, backend := range []string{"nftables", "iptables"} {
				t.Run(rules.name+"/"+flavour+"/"+backend, func(t *testing.T) {
					t.Parallel()
					testForwardDrop(t, flavour, rules.text, backend)
				})
			}
		}
	}
}

func testForwardDrop(t *testing.T, flavour, rules, backend string) {
	host, outside := node(t)
	host.UseIPTables(t, flavour)
	for _, program := range []string{"iptables", "ip6tables"} {
		host.Feed(t, rules, program+"-"+flavour+"-restore")
	}
	outside.AddRoute(t, "10.77.0.0/24")
	outside.AddRoute(t, "fd00:77::/64")
	bare, conflist := guarded("fw0", 77, ""), guarded("fw0", 77, fmt.Sprintf(`, "backend": "%s"`, backend))

	without := attach(t, host, bare, "without", ports("8081:80/tcp"))
	with := attach(t, host, conflist, "with", ports("8080:80/tcp"))
	outside.ServeTCP(t, "[::]:80")
	without.ServeTCP(t, "[::]:80")
	with.ServeTCP(t, "[::]:80")
	// Packets from one to the other cross no hook of iptables, unless
	// br_netfilter is on.
	passes := []path{
		{"out", &with.Namespace, at(outV4, 80)}, {"out", &with.Namespace, at(outV6, 80)},
		{"to a published port", &outside.Namespace, at(hostV4, 8080)}, {"to a published port", &outside.Namespace, at(hostV6, 8080)},
	}
	blocked := []path{
		{"out", &without.Namespace, at(outV4, 80)}, {"out", &without.Namespace, at(outV6, 80)},
		{"to a published port", &outside.Namespace, at(hostV4, 8081)}, {"to a published port", &outside.Namespace, at(hostV6, 8081)},
	}
	if backend == "iptables" { // as with the reference plugin, published ports take a word of the administrator's
		blocked = append(blocked, passes[2:]...)
	}
	stuck(t, "without the plugin or the administrator's word", blocked)
	if backend == "iptables" {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			host.MustRun(t, program+flavour, "-A", "CNI-ADMIN", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
		}
	}
	flows(t, "with the plugin", passes)
	if err := host.CheckList(conflist, with.RuntimeConf(ports("8080:80/tcp"))); err != nil {
		t.Errorf("CHECK: %v", err)
	}

	// The administrator's word comes first. It is not about answers, which could hide that a request came through.
	for program, address := range map[string]netip.Addr{"iptables-": with.v4, "ip6tables-": with.v6} {
		host.MustRun(t, program+flavour, "-I", "CNI-ADMIN", "-s", address.String(), "-m", "conntrack", "--ctdir", "ORIGINAL", "-j", "DROP")
	}
	stuck(t, "with the plugin, dropped in the admin chain or not published", append(passes[:2:2],
		path{"to the container itself", &outside.Namespace, at(with.v4, 80)}, path{"to the container itself", &outside.Namespace, at(with.v6, 80)}))
	for _, program := range []string{"iptables-", "ip6tables-"} {
		host.MustRun(t, program+flavour, "-D", "CNI-ADMIN", "1")
	}

	detach(t, host, conflist, with, ports("8080:80/tcp"))
	before := host.Snapshot(t)
	again := attach(t, host, conflist, "again", ports("8080:80/tcp"))
	again.ServeTCP(t, "[::]:80")
	flows(t, "again", passes[2:])
	detach(t, host, conflist, again, ports("8080:80/tcp"))
	again.Delete(t)
	if diff := before.Diff(host.Snapshot(t), ofStore("fw0")...); diff != "" {
		t.Errorf("left behind by DEL:\n%s", diff)
	}
}

// TestForwardDropInNFTables has a host that drops in a table of its own, where
// only the rule helps that docs/plugins/firewall.md names.
func TestForwardDropInNFTables(t *testing.T) {
	t.Parallel()
	host, outside := node(t)
	host.Feed(t, "table inet filter {\n chain forward {\n type filter hook forward priority filter; policy drop;\n }\n}\n", "nft", "-f", "-")
	conflist := guarded("fw0", 77, `, "backend": "nftables"`)
	pod := attach(t, host, conflist, "web", ports("8080:80/tcp"))
	pod.ServeTCP(t, "[::]:80")
	outside.ServeTCP(t, "[::]:80")
	paths := []path{
		{"out", &pod.Namespace, at(outV4, 80)}, {"out", &pod.Namespace, at(outV6, 80)},
		{"to a published port", &outside.Namespace, at(hostV4, 8080)}, {"to a published port", &outside.Namespace, at(hostV6, 8080)},
	}
	stuck(t, "dropped by someone else's table", paths)
	page, err := os.ReadFile("../../docs/plugins/firewall.md")
	if err != nil {
		t.Fatal(err)
	}
	const rule = "nft insert rule inet filter forward meta mark and 0x1000 == 0x1000 accept"
	if !strings.Contains(string(page), rule) {
		t.Errorf("docs/plugins/firewall.md does not say %q", rule)
	}
	args := strings.Fields(rule)
	host.MustRun(t, args[0], args[1:]...)
	flows(t, "with the rule of the documentation", paths)
}

// TestFirewalldZone has a real firewalld drop and pass a container's packets by rules of iptables.
func TestFirewalldZone(t *testing.T) {
	t.Parallel()
	host, outside := node(t)
	firewalld := firewalldtest.Start(t, host, "iptables")
	bare := guarded("fw0", 77, "")
	conflist := guarded("fw0", 77, `, "ingressPolicy": "isolated"`) // no backend: firewalld runs
	outside.ServeTCP(t, "[::]:80")
	without := attach(t, host, bare, "without", nil)
	stuck(t, "without the plugin", []path{{"out", &without.Namespace, at(outV4, 80)}, {"out", &without.Namespace, at(outV6, 80)}})
	pod, other := attach(t, host, conflist, "with", nil), attach(t, host, conflist, "other", nil)
	other.ServeTCP(t, "[::]:80")
	flows(t, "with the plugin", []path{{"out", &pod.Namespace, at(outV4, 80)}, {"out", &pod.Namespace, at(outV6, 80)}})
	stuck(t, "isolated", []path{{"to the other", &pod.Namespace, at(other.v4, 80)}})
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	firewalld.Reload(t)
	if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err == nil || !strings.Contains(err.Error(), "is not a source of firewalld's zone trusted") {
		t.Errorf("CHECK after a reload: %v", err)
	}
	detach(t, host, conflist, pod, nil)
	detach(t, host, conflist, other, nil)
	if rules := host.MustRun(t, "nft", "list", "ruleset"); strings.Contains(rules, pod.v4.String()) || strings.Contains(rules, pod.ID) {
		t.Errorf("left behind by DEL:\n%s", rules)
	}
}
