package upgrade

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestJourney goes from the reference plugins to cnibox and back, with the operator's commands, while containers run whose network has
// every plugin that can stand in one chain. At every stop all containers reach each other and are reached.
func TestJourney(t *testing.T) {
	t.Parallel()
	wanted := func(o origin) bool {
		return *long || o.name != "1.9.1-iptables-legacy" && o.name != "1.1.1-iptables-nft"
	}
	forEach(t, wanted, func(t *testing.T, o origin) {
		j := startJourney(t, o)
		fresh := j.Snapshot(t)
		first, second, third := j.start(t, "first"), j.start(t, "second"), j.start(t, "third")
		j.allWork(t)

		before := j.Snapshot(t)
		j.MustRun(t, netlab.Cnictl(t), "install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(t), "--force")
		j.hasCnibox = true
		j.same(t, "install", before, "file "+netlab.PluginDir)
		j.allWork(t)
		fourth, fifth := j.start(t, "fourth"), j.start(t, "fifth")
		j.stop(t, first)
		j.stop(t, fourth)
		j.allWork(t)
		if !o.usesIPTables() { // the reference plugins do not know what cnibox has in nftables
			j.stop(t, fifth)
		}

		between := j.Snapshot(t)
		j.MustRun(t, netlab.Cnictl(t), "uninstall", "--dir", netlab.PluginDir)
		j.hasCnibox = false
		j.same(t, "uninstall", between, "file "+netlab.PluginDir)
		if now := j.Snapshot(t); !slices.Equal(now.Lines("file /opt"), before.Lines("file /opt")) {
			t.Errorf("/opt is not what it was before cnibox came:\n%s", before.Diff(now))
		}
		sixth := j.start(t, "sixth")
		j.allWork(t)
		j.stop(t, second)
		if o.usesIPTables() {
			j.stop(t, fifth)
		}
		j.allWork(t)
		if _, err := j.Output(j.Command(netlab.Cnictl(t), "purge", "--apply")); err == nil {
			t.Error("cnictl purge --apply took no notice of containers that run")
		}
		j.stop(t, third)
		j.stop(t, sixth)

		j.MustRun(t, netlab.Cnictl(t), "purge", "--apply")
		j.same(t, "the whole journey", fresh, "file /run/xtables.lock")
	})
}

// TestGoBackWithAnEmptyNode is the way that needs no key: purge, and then uninstall.
func TestGoBackWithAnEmptyNode(t *testing.T) {
	t.Parallel()
	j := startJourney(t, origins[0])
	fresh := j.Snapshot(t)
	old := j.start(t, "old")
	j.MustRun(t, netlab.Cnictl(t), "install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(t), "--force")
	young := j.start(t, "young")
	j.stop(t, old)
	j.stop(t, young)
	j.MustRun(t, netlab.Cnictl(t), "purge", "--apply")
	j.MustRun(t, netlab.Cnictl(t), "uninstall", "--dir", netlab.PluginDir)
	j.same(t, "the whole journey", fresh)
}

// journey is a node whose plugins change while containers run.
type journey struct {
	*node
	conflists map[string]string // by the network's name
	running   []*attachment
	port      int // the last that was published
	hasCnibox bool
}

// startJourney returns a node with the reference plugins as their packages install them.
func startJourney(t *testing.T, o origin) *journey {
	t.Helper()
	j := &journey{node: newNode(t, o), conflists: journeyNetworks(t, o), port: 8000}
	j.MustRun(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1") // which purge leaves as it is
	if !o.usesIPTables() {                                                                   // then the reference's bridge makes empty tables when it detaches a container, which purge leaves, too
		j.MustRun(t, "nft", "add table ip nat; add table ip6 nat")
	}
	j.Do(func() {
		if err := os.CopyFS(netlab.PluginDir, os.DirFS(o.dir(t))); err != nil {
			t.Fatal(err)
		}
		const dir = "/etc/cni/net.d"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range j.conflists {
			if err := os.WriteFile(filepath.Join(dir, name+".conflist"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	return j
}

// journeyNetworks returns the conflists of two networks, which together have every plugin that can stand in a chain, as far as the kernel
// has what it needs. The second has sbr, which is made for a container's second interface.
func journeyNetworks(t *testing.T, o origin) map[string]string {
	backend := o.backend
	if backend == "" { // of reference plugins that know no such key, and iptables alone
		backend = "iptables"
	}
	firewall, bandwidth := "", ""
	if backend == "iptables" { // the reference's firewall knows no nftables
		firewall = `"backend": "iptables",`
	}
	if netlab.Has(t, netlab.Shaping) {
		bandwidth = `{"type": "bandwidth", "ingressRate": 100000000, "ingressBurst": 8000000, "egressRate": 200000000, "egressBurst": 16000000},`
	}
	conflist := func(w network, gateway, more string) string {
		return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": %q,
  "plugins": [
    {"type": "bridge", "bridge": %q, %q: true, "hairpinMode": true, "ipMasq": true, "ipMasqBackend": %q,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}], [{"subnet": %q}]]}},
    %s
    {"type": "portmap", "backend": %q, "capabilities": {"portMappings": true}},
    {"type": "firewall", %s "ingressPolicy": "open"}
  ]
}`, w.name, w.bridge, gateway, backend, w.subnet4, w.subnet6, more, backend, firewall)
	}
	return map[string]string{
		demo.name: conflist(demo, "isDefaultGateway", bandwidth+
			`{"type": "tuning", "mtu": 1400, "promisc": true, "sysctl": {"net.core.somaxconn": "513", "net.ipv4.conf.IFNAME.log_martians": "1"}},`),
		other.name: conflist(other, "isGateway", `{"type": "sbr"},`),
	}
}

// start attaches a container to both networks. It serves its name at published ports.
func (j *journey) start(t *testing.T, name string) *netlab.Pod {
	t.Helper()
	pod := j.NewPod(t, name)
	pod.SetLoopbackUp(t)
	for i, w := range []network{demo, other} {
		j.port++
		a := j.attachment(w, pod, fmt.Sprint("eth", i), j.port)
		result, err := j.AddList(j.conflists[w.name], a.rt)
		if err != nil {
			t.Fatalf("ADD %s: %v", a, err)
		}
		a.v4, a.v6 = netlab.Addresses(result)
		for _, address := range []netip.Addr{a.v4, a.v6} {
			pod.ServeTCP(t, netip.AddrPortFrom(address, 80).String())
		}
		j.running = append(j.running, a)
	}
	return pod
}

// stop detaches a container and removes its namespace, in the order in which runtimes do.
func (j *journey) stop(t *testing.T, pod *netlab.Pod) {
	t.Helper()
	for _, a := range slices.Backward(j.running) {
		if a.pod != pod {
			continue
		}
		if err := j.DelList(j.conflists[a.network.name], a.rt); err != nil {
			t.Errorf("DEL %s: %v", a, err)
		}
	}
	pod.Delete(t)
	j.running = slices.DeleteFunc(j.running, func(a *attachment) bool { return a.pod == pod })
}

// allWork makes sure that each attachment passes CHECK, reaches the others of its network and the outside, and is reached at its
// published port. The CHECK of the reference's bridge misses a route that sbr has moved.
func (j *journey) allWork(t *testing.T) {
	t.Helper()
	for i, a := range j.running {
		if err := j.CheckList(j.conflists[a.network.name], a.rt); err != nil && (j.hasCnibox || j.origin.checks(a) && a.network == demo) {
			t.Errorf("CHECK %s: %v", a, err)
		}
		j.reached(t, a)
		for from, to := range map[netip.Addr]string{a.v4: netlab.OutsideIPv4, a.v6: netlab.OutsideIPv6} {
			if _, err := a.pod.Output(a.pod.Command("ping", "-n", "-c", "1", "-W", fmt.Sprint(netlab.Patience.Seconds()), "-I", from.String(), to)); err != nil {
				t.Errorf("%s to the outside: %v", a, err)
			}
		}
		published := netip.AddrPortFrom(netip.MustParseAddr(netlab.HostIPv4), uint16(a.port)).String()
		for _, b := range j.running[i:] {
			if b.network != a.network {
				continue
			}
			for _, address := range []netip.Addr{b.v4, b.v6} {
				if err := a.pod.Ping(address.String(), netlab.Patience); err != nil {
					t.Errorf("%s to %s: %v", a, b, err)
				}
			}
			if answer, err := b.pod.DialTCP(published, netlab.Patience); err != nil || !strings.HasPrefix(answer, a.pod.Name()+" ") {
				t.Errorf("%s at its published port from %s: %q, %v", a, b, answer, err)
			}
		}
	}
}

// same makes sure that the node is as it was, byte by byte.
func (j *journey) same(t *testing.T, after string, before *netlab.Snapshot, except ...string) {
	t.Helper()
	if diff := before.Diff(j.Snapshot(t), except...); diff != "" {
		t.Errorf("%s has changed:\n%s", after, diff)
	}
}
