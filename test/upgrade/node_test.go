package upgrade

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/netlab"
)

var plugins = []string{"bridge", "host-local", "portmap", "firewall", "bandwidth"}

// node is a host and what was on it before the first ADD.
type node struct {
	*netlab.Host
	outside *netlab.Outside
	before  *netlab.Snapshot
	origin  origin
}

// newNode returns a node without plugins.
func newNode(t testing.TB, o origin) *node {
	t.Helper()
	host := netlab.NewHost(t)
	host.UseIPTables(t, o.flavour)
	n := &node{Host: host, outside: host.NewOutside(t), origin: o}
	n.before = n.Snapshot(t)
	return n
}

// useReference makes the reference plugins the node's.
func (n *node) useReference(t testing.TB) {
	t.Helper()
	n.InstallFrom(t, n.origin.dir(t), plugins...)
}

// useOurs makes cnibox the node's plugins.
func (n *node) useOurs(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range plugins {
		if err := os.Symlink(netlab.Cnibox(t), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.InstallFrom(t, dir, plugins...)
}

// network is a network of the node.
type network struct {
	name, bridge, subnet4, subnet6 string
}

var (
	demo  = network{"demo", "demo0", "10.88.0.0/24", "fd00:88::/64"}
	other = network{"other", "other0", "10.99.0.0/24", "fd00:99::/64"}
)

// conflist returns the network's configuration in a version of CNI: 1.1.0 is the
// first with GC, which the reference plugins of Debian do not know.
func (w network) conflist(cniVersion, backend string) string {
	masquerade, ports, firewall := "", "", ""
	if backend != "" {
		masquerade = fmt.Sprintf(`"ipMasqBackend": %q,`, backend)
		ports = fmt.Sprintf(`"backend": %q,`, backend)
	}
	if backend == "iptables" { // which is all that the reference plugins have here
		firewall = `, "backend": "iptables"`
	}
	return fmt.Sprintf(`{
  "cniVersion": %q, "name": %q,
  "plugins": [
    {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, %s
     "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}], [{"subnet": %q}]]}},
    {"type": "portmap", %s "capabilities": {"portMappings": true}},
    {"type": "firewall"%s}
  ]
}`, cniVersion, w.name, w.bridge, masquerade, w.subnet4, w.subnet6, ports, firewall)
}

// gateways returns the node's addresses on the network's bridge.
func (w network) gateways() []string {
	return []string{strings.Replace(w.subnet4, ".0/24", ".1", 1), strings.Replace(w.subnet6, "/64", "1", 1)}
}

// attachment is a pod on a network.
type attachment struct {
	network network
	pod     *netlab.Pod
	rt      *libcni.RuntimeConf
	v4, v6  netip.Addr
	port    int // of the host, tcp and udp, that leads to port 80; 0 if none is published
}

// pods are the attachments of two pods, one of which is on a network twice and on
// another one. The reference plugins can't publish ports of two attachments to
// one network.
func (n *node) pods(t testing.TB) []*attachment {
	t.Helper()
	one, two := n.NewPod(t, "one"), n.NewPod(t, "two")
	return []*attachment{
		n.attachment(demo, one, "eth0", 8080),
		n.attachment(demo, one, "eth1", 0),
		n.attachment(other, one, "eth2", 9090),
		n.attachment(demo, two, "eth0", 8081),
	}
}

func (n *node) attachment(w network, pod *netlab.Pod, ifName string, port int) *attachment {
	var ports []map[string]any
	if port != 0 {
		for _, protocol := range []string{"tcp", "udp"} {
			ports = append(ports, map[string]any{"hostPort": port, "containerPort": 80, "protocol": protocol})
		}
	}
	rt := pod.RuntimeConf(map[string]any{"portMappings": ports})
	rt.IfName = ifName
	return &attachment{network: w, pod: pod, rt: rt, port: port}
}

// add calls ADD with the origin's backend. The pod serves its name on the
// published port.
func (n *node) add(t testing.TB, a *attachment, backend string) {
	t.Helper()
	result, err := n.AddList(a.network.conflist("1.0.0", backend), a.rt)
	if err != nil {
		t.Fatalf("ADD %s: %v", a, err)
	}
	a.v4, a.v6 = netlab.Addresses(result)
	if a.port == 0 {
		return
	}
	// Answers leave by where the request came in.
	table := strings.TrimPrefix(a.rt.IfName, "eth") + "1"
	for i, addr := range []netip.Addr{a.v4, a.v6} {
		family := []string{"-4", "-6"}[i]
		a.pod.MustRun(t, "ip", family, "route", "add", "default", "via", a.network.gateways()[i], "dev", a.rt.IfName, "table", table)
		a.pod.MustRun(t, "ip", family, "rule", "add", "from", addr.String(), "table", table)
		a.pod.ServeTCP(t, netip.AddrPortFrom(addr, 80).String())
	}
}

func (a *attachment) String() string {
	return a.network.name + "/" + a.pod.Name() + "/" + a.rt.IfName
}

// reached connects to the attachment's published port from outside, by both
// families.
func (n *node) reached(t testing.TB, a *attachment) {
	t.Helper()
	if a.port == 0 {
		return
	}
	for _, host := range []string{netlab.HostIPv4, netlab.HostIPv6} {
		target := netip.AddrPortFrom(netip.MustParseAddr(host), uint16(a.port)).String()
		answer, err := n.outside.DialTCP(target, netlab.Patience)
		if err != nil || !strings.HasPrefix(answer, a.pod.Name()+" ") {
			t.Errorf("%s at %s: %q, %v", a, target, answer, err)
		}
	}
}

// del calls DEL as a runtime does that has upgraded its configuration too.
func (n *node) del(t testing.TB, a *attachment, cniVersion, backend string) {
	t.Helper()
	if err := n.DelList(a.network.conflist(cniVersion, backend), a.rt); err != nil {
		t.Errorf("DEL %s: %v", a, err)
	}
}

func (n *node) check(t testing.TB, a *attachment, backend string) {
	t.Helper()
	if err := n.CheckList(a.network.conflist("1.0.0", backend), a.rt); err != nil {
		t.Errorf("CHECK %s: %v", a, err)
	}
}

// forget removes what libcni knows of the attachments, as after a crash.
func (n *node) forget(t testing.TB) {
	t.Helper()
	n.Do(func() {
		files, err := filepath.Glob(filepath.Join(netlab.CacheDir, "results", "*"))
		if err != nil || len(files) == 0 {
			t.Errorf("%d results in libcni's cache, %v", len(files), err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Error(err)
			}
		}
	})
}

// otherState begins the lines of a snapshot that are not of the packet filter or
// below /var/lib/cni.
var otherState = []string{"link", "address", "route", "rule", "qdisc", "sysctl", "mount", "file /run", "file /opt", "file /etc"}

// emptyStores begin the lines that tell of directories and of host-local's own
// furniture in them.
var emptyStores = []string{
	"file /var/lib/cni/networks drwx", "file /var/lib/cni/results drwx", "file /var/lib/cni/networks/.cnibox",
	"file /var/lib/cni/cnibox", // the notes of cnibox' ADDs, which the reference plugins' DEL leaves
	"file /var/lib/cni/networks/checked drwx", "file /var/lib/cni/networks/checked/lock", "file /var/lib/cni/networks/checked/last_reserved_ip",
	"file /var/lib/cni/networks/demo drwx", "file /var/lib/cni/networks/demo/lock", "file /var/lib/cni/networks/demo/last_reserved_ip",
	"file /var/lib/cni/networks/other drwx", "file /var/lib/cni/networks/other/lock", "file /var/lib/cni/networks/other/last_reserved_ip",
}

// nothingLeft makes sure that no attachment has anything in the packet filter or
// below /var/lib/cni, except for lines of a snapshot that begin in a known way.
func (n *node) nothingLeft(t testing.TB, except ...string) {
	t.Helper()
	now := n.Snapshot(t)
	ignored := slices.Concat(otherState, emptyStores, staticChains(), referenceTables, localhostGuard, except)
	if diff := n.before.Diff(now, ignored...); diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}
	for _, table := range referenceTables {
		for _, line := range now.Lines(table) {
			if ofAttachment.MatchString(line) {
				t.Errorf("left behind: %s", line)
			}
		}
	}
}

// localhostGuard begin the lines of the rule of backend iptables that keeps containers from 127.0.0.1, which stays.
var localhostGuard = []string{"iptables ip nft raw:", "iptables ip legacy raw:", "nft table ip raw"}

// referenceTables begin the lines of the reference plugins' tables of nftables, which
// stay. What is an attachment's in them has chains of its own.
var (
	referenceTables = []string{"nft table inet cni_plugins_masquerade", "nft table ip cni_hostport", "nft table ip6 cni_hostport"}
	ofAttachment    = regexp.MustCompile(` chain (masq_checks|hostports|hostip_hostports|masquerading): comment `)
)

// noVeths makes sure that no attachment has a veth pair.
func (n *node) noVeths(t testing.TB) {
	t.Helper()
	if veths := n.Snapshot(t).Lines("link veth"); len(veths) > 0 {
		t.Errorf("left behind: %q", veths)
	}
}
