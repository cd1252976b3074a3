package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/firewalld/firewalldtest"
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
		if reply, err := p.from.DialTCP(p.to, timeout); err != nil {
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
			reply, err := p.from.DialTCP(p.to, refusal)
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
// only the rule helps that docs/firewall.md names.
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
	page, err := os.ReadFile("../../docs/firewall.md")
	if err != nil {
		t.Fatal(err)
	}
	const rule = "nft insert rule inet filter forward meta mark and 0x1000 == 0x1000 accept"
	if !strings.Contains(string(page), rule) {
		t.Errorf("docs/firewall.md does not say %q", rule)
	}
	args := strings.Fields(rule)
	host.MustRun(t, args[0], args[1:]...)
	flows(t, "with the rule of the documentation", paths)
}

// TestMarkIsOurs has someone else set the bit, which must not open anything.
func TestMarkIsOurs(t *testing.T) {
	t.Parallel()
	host, outside := node(t)
	host.Feed(t, dockerRules, "iptables-restore")
	host.MustRun(t, "iptables", "-t", "mangle", "-A", "PREROUTING", "-j", "MARK", "--set-mark", "0xffffffff")
	outside.AddRoute(t, "10.77.0.0/24")
	pod := attach(t, host, guarded("fw0", 77, `, "backend": "nftables"`), "web", ports("8080:80/tcp"))
	bare := attach(t, host, guarded("fw1", 78, ""), "bare", nil)
	pod.ServeTCP(t, ":80")
	outside.ServeTCP(t, ":80")
	stuck(t, "marked by someone else", []path{
		{"in", &outside.Namespace, at(pod.v4, 80)}, {"out", &bare.Namespace, at(outV4, 80)},
	})
	flows(t, "marked by someone else", []path{{"out", &pod.Namespace, at(outV4, 80)}, {"to a published port", &outside.Namespace, at(hostV4, 8080)}})
}

// TestIngressPolicy tries all pairs of containers on bridges of each policy, with
// netfilter looking at what crosses a bridge and without.
func TestIngressPolicy(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		for _, bridged := range []string{"0", "1"} {
			t.Run(backend+"/bridge-nf-call-"+bridged, func(t *testing.T) {
				t.Parallel()
				testIngressPolicy(t, backend, bridged)
			})
		}
	}
}

func testIngressPolicy(t *testing.T, backend, bridged string) {
	host, outside := node(t)
	for _, key := range []string{"iptables", "ip6tables"} {
		// Absent without br_netfilter, which is the same as 0.
		if _, err := host.Output(host.Command("sysctl", "-qw", "net.bridge.bridge-nf-call-"+key+"="+bridged)); err != nil && bridged == "1" {
			t.Skipf("no br_netfilter: %v", err)
		}
	}
	list := map[string]string{}
	for i, policy := range []string{"open", "same-bridge", "isolated", "isolated2"} {
		list[policy] = guarded("fw"+fmt.Sprint(i), 60+i, fmt.Sprintf(`, "backend": "%s", "ingressPolicy": "%s"`, backend, strings.TrimSuffix(policy, "2")))
		outside.AddRoute(t, fmt.Sprintf("10.%d.0.0/24", 60+i))
		outside.AddRoute(t, fmt.Sprintf("fd00:%d::/64", 60+i))
	}
	first := attach(t, host, list["isolated"], "first", nil) // what all share is there from now on
	second := attach(t, host, list["same-bridge"], "second", nil)
	detach(t, host, list["isolated"], first, nil)
	detach(t, host, list["same-bridge"], second, nil)
	for _, policy := range []string{"open", "isolated2"} {
		c := attach(t, host, list[policy], "warm "+policy, nil)
		detach(t, host, list[policy], c, nil)
	}
	before := host.Snapshot(t)

	type member struct {
		*container
		policy string
	}
	var members []member
	for policy, n := range map[string]int{"open": 1, "same-bridge": 2, "isolated": 2, "isolated2": 1} {
		for i := range n {
			c := attach(t, host, list[policy], fmt.Sprintf("%s-%d", policy, i), nil)
			c.ServeTCP(t, "[::]:80")
			members = append(members, member{c, policy})
		}
	}
	outside.ServeTCP(t, "[::]:80")
	var allowed, blocked []path
	for _, from := range members {
		for _, to := range members {
			if from.container == to.container {
				continue
			}
			may := from.policy == "open" || to.policy == "open" || from.policy == "same-bridge" && to.policy == "same-bridge"
			if from.policy == to.policy && backend == "iptables" && bridged == "0" && from.policy == "isolated" {
				may = true // the reference's rules don't see what crosses a bridge without br_netfilter
			}
			for _, address := range []netip.Addr{to.v4, to.v6} {
				p := path{from.policy + " to " + to.policy, &from.Namespace, at(address, 80)}
				if may {
					allowed = append(allowed, p)
				} else {
					blocked = append(blocked, p)
				}
			}
		}
		for _, address := range []netip.Addr{from.v4, from.v6} {
			allowed = append(allowed,
				path{"host to " + from.policy, &host.Namespace, at(address, 80)},
				path{"outside to " + from.policy, &outside.Namespace, at(address, 80)})
		}
		for _, address := range []netip.Addr{outV4, outV6} {
			allowed = append(allowed, path{from.policy + " to outside", &from.Namespace, at(address, 80)})
		}
	}
	flows(t, "all attached", allowed)
	stuck(t, "all attached", blocked)
	for _, p := range allowed {
		t.Logf("allowed: %s (%s to %s)", p.name, p.from.Name(), p.to)
	}
	for _, p := range blocked {
		t.Logf("blocked: %s (%s to %s)", p.name, p.from.Name(), p.to)
	}
	for i, m := range members {
		if err := host.CheckList(list[m.policy], m.RuntimeConf(nil)); err != nil {
			t.Errorf("CHECK of %s: %v", m.Name(), err)
		}
		// Every other one has lost all that would help its DEL.
		if i%2 == 0 {
			m.Delete(t)
			host.MustRun(t, "sh", "-c", "rm -f /var/lib/cni/results/*"+m.ID+"*")
		}
		detach(t, host, list[m.policy], m.container, nil)
	}
	if diff := before.Diff(host.Snapshot(t), append(ofStore("fw0", "fw1", "fw2", "fw3"), "file /run/netns", "mount /run/netns")...); diff != "" {
		t.Errorf("left behind by DEL:\n%s", diff)
	}
}

// TestMACSpoofing has a container change its MAC address, with macspoofchk and
// without.
func TestMACSpoofing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, keys string
		blocked    bool
	}{{"checked", `, "macspoofchk": true`, true}, {"not checked", "", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, _ := node(t)
			conflist := strings.Replace(guarded("fw0", 77, ""), `"ipMasq": true`, `"ipMasq": true`+c.keys, 1)
			warm := attach(t, host, conflist, "warm", nil)
			detach(t, host, conflist, warm, nil)
			before := host.Snapshot(t)
			honest, evil := attach(t, host, conflist, "honest", nil), attach(t, host, conflist, "evil", nil)
			honest.ServeTCP(t, "[::]:80")
			peers := func(c *container) []path {
				return []path{
					{"to the other", &c.Namespace, at(honest.v4, 80)}, {"to the other", &c.Namespace, at(honest.v6, 80)},
				}
			}
			flows(t, "with its own address", peers(evil))
			evil.MustRun(t, "ip", "link", "set", "eth0", "address", "02:66:66:66:66:66")
			if c.blocked {
				stuck(t, "with another address", peers(evil))
				if err := evil.Ping("10.77.0.1", refusal); err == nil {
					t.Error("with another address: the gateway answers")
				}
			} else {
				flows(t, "with another address", peers(evil))
			}
			if err := honest.Ping("10.77.0.1", timeout); err != nil {
				t.Errorf("the honest one can't send: %v", err)
			}
			if err := host.CheckList(conflist, honest.RuntimeConf(nil)); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if c.blocked {
				host.MustRun(t, "nft", "flush", "set", "bridge", "cnibox", "checked_v1")
				if err := host.CheckList(conflist, honest.RuntimeConf(nil)); err == nil || !strings.Contains(err.Error(), "checked_v1") {
					t.Errorf("CHECK of what is not checked any more: %v", err)
				}
			}
			// The configuration may be another one by the time of DEL.
			other := strings.Replace(conflist, c.keys, "", 1)
			evil.Delete(t)
			detach(t, host, other, evil, nil)
			detach(t, host, other, honest, nil)
			if diff := before.Diff(host.Snapshot(t), append(ofStore("fw0"), "file /run/netns", "mount /run/netns")...); diff != "" {
				t.Errorf("left behind by DEL:\n%s", diff)
			}
		})
	}
}

// TestFirewallGC removes what attachments hold that the runtime has lost.
func TestFirewallGC(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	conflist := strings.Replace(guarded("fw0", 77, `, "backend": "nftables", "ingressPolicy": "isolated"`), `"ipMasq": true`, `"ipMasq": true, "macspoofchk": true`, 1)
	conflist = strings.Replace(conflist, "1.0.0", "1.1.0", 1)
	kept := attach(t, host, conflist, "kept", nil)
	lost := attach(t, host, conflist, "lost", nil)
	if err := host.GCList(conflist, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: kept.ID, IfName: "eth0"}}}); err != nil {
		t.Fatal(err)
	}
	rules := host.MustRun(t, "nft", "list", "ruleset")
	if strings.Contains(rules, lost.v4.String()+" ") || strings.Contains(rules, lost.ID) || !strings.Contains(rules, kept.v4.String()) || !strings.Contains(rules, `"fw0" . "fw0"`) {
		t.Errorf("after GC:\n%s", rules)
	}
	if err := host.CheckList(conflist, kept.RuntimeConf(nil)); err != nil {
		t.Errorf("CHECK of the one that is kept: %v", err)
	}
}

// TestFirewalldZone has a real firewalld drop and pass a container's packets.
func TestFirewalldZone(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			host, outside := node(t)
			firewalldtest.StartBus(t, host)
			firewalldtest.Start(t, host, backend)
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
			host.MustRun(t, "firewall-cmd", "--reload")
			if err := host.CheckList(conflist, pod.RuntimeConf(nil)); err == nil || !strings.Contains(err.Error(), "is not a source of firewalld's zone trusted") {
				t.Errorf("CHECK after a reload: %v", err)
			}
			detach(t, host, conflist, pod, nil)
			detach(t, host, conflist, other, nil)
			if rules := host.MustRun(t, "nft", "list", "ruleset"); strings.Contains(rules, pod.v4.String()) || strings.Contains(rules, pod.ID) {
				t.Errorf("left behind by DEL:\n%s", rules)
			}
		})
	}
}

// TestFirewallErrors are what people get to see.
func TestFirewallErrors(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	pod := host.NewPod(t, "pod")
	for _, c := range []struct{ keys, want string }{
		{`, "backend": "ebtables"`, `key "backend": want nftables, iptables or firewalld, got "ebtables"`},
		{`, "ingressPolicy": "closed"`, `key "ingressPolicy": want open, same-bridge or isolated, got "closed"`},
		{`, "backend": "firewalld"`, "firewalld is not running"},
		{`, "iptablesAdminChainName": "no chain"`, "iptablesAdminChainName"},
	} {
		before := host.Snapshot(t)
		_, err := host.AddList(guarded("fw0", 77, c.keys), pod.RuntimeConf(nil))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.keys, err, c.want)
		}
		if err := host.DelList(guarded("fw0", 77, c.keys), pod.RuntimeConf(nil)); err != nil {
			t.Errorf("DEL after %s: %v", c.keys, err)
		}
		if diff := before.Diff(host.Snapshot(t), "link fw0", "address fw0", "route", "sysctl", "nft table inet cnibox", "file"); strings.Contains(diff, "iptables") || strings.Contains(diff, "veth") {
			t.Errorf("%s left behind:\n%s", c.keys, diff)
		}
	}
	result := host.Exec(t, "firewall", netlab.PluginCall{
		Command: "ADD", ContainerID: "x", Netns: pod.Path(), IfName: "eth0", Path: netlab.PluginDir,
		Config: `{"cniVersion": "1.0.0", "name": "n", "type": "firewall"}`,
	})
	if result.Error == nil || !strings.Contains(result.Error.Msg, "missing prevResult from earlier plugin") {
		t.Errorf("without prevResult: %v", result)
	}
}
