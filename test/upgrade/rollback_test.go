package upgrade

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestRollback has cnibox attach pods, with iptables, and the reference plugins
// check and detach them.
func TestRollback(t *testing.T) {
	t.Parallel()
	forEach(t, origin.usesIPTables, func(t *testing.T, o origin) {
		n := newNode(t, o)
		n.useOurs(t)
		old := n.attachment(demo, n.NewPod(t, "old"), "eth0", 8080)
		n.add(t, old, "iptables")
		private := n.attachment(demo, n.NewPod(t, "private"), "eth0", 0)
		n.add(t, private, "iptables")
		n.useReference(t)
		for _, a := range []*attachment{old, private} {
			if o.checks(a) {
				n.check(t, a, o.backend)
			}
		}
		young := n.attachment(demo, n.NewPod(t, "young"), "eth0", 8081)
		n.add(t, young, o.backend)
		n.reached(t, old)
		n.reached(t, young)
		n.del(t, old, "1.0.0", o.backend)
		n.reached(t, young)
		n.del(t, young, "1.0.0", o.backend)
		n.del(t, private, "1.0.0", o.backend)
		n.nothingLeft(t)
		n.noVeths(t)
	})
}

// TestRollbackFromNFTables: the reference plugins do not know our tables. Either
// they detach the pods and the tables are removed then, with all that is in them,
// or cnibox detaches the pods before.
func TestRollbackFromNFTables(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name   string
		wanted func(origin) bool
		goBack func(t *testing.T, n *node, pods []*attachment)
	}{
		{
			name: "delete-table",
			// A DEL of 1.1.1 fails without its rules as long as the pod is there,
			// as its second DEL does.
			wanted: func(o origin) bool { return o.name == "1.9.1-nftables" || o.name == "1.9.1-iptables-legacy" },
			goBack: func(t *testing.T, n *node, pods []*attachment) {
				n.useReference(t)
				for _, a := range pods {
					n.del(t, a, "1.0.0", "")
				}
			},
		},
		{
			name:   "DEL-before",
			wanted: func(o origin) bool { return o.flavour == "nft" },
			goBack: func(t *testing.T, n *node, pods []*attachment) {
				n.writeConfig(t)
				for _, a := range pods {
					n.MustRun(t, netlab.Cnictl(t), "del", a.network.name, "--id", a.rt.ContainerID, "--ifname", a.rt.IfName)
				}
				for _, a := range pods {
					if listing := n.MustRun(t, "nft", "list", "ruleset"); strings.Contains(listing, a.pod.ID) {
						t.Errorf("%s is still there:\n%s", a, listing)
					}
				}
				n.useReference(t)
			},
		},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			forEach(t, way.wanted, func(t *testing.T, o origin) {
				n := newNode(t, o)
				n.useOurs(t)
				pods := n.pods(t)
				for _, a := range pods {
					n.add(t, a, "nftables")
				}
				way.goBack(t, n, pods)
				n.removeOurs(t)
				n.nothingLeft(t)
				again := n.attachment(demo, n.NewPod(t, "again"), "eth0", 8080)
				n.add(t, again, o.backend)
				n.reached(t, again)
			})
		})
	}
}

// writeConfig puts the networks where cnictl finds them.
func (n *node) writeConfig(t *testing.T) {
	t.Helper()
	const dir = "/etc/cni/net.d"
	n.Do(func() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, w := range []network{demo, other} {
			if err := os.WriteFile(filepath.Join(dir, w.name+".conflist"), []byte(w.conflist("1.1.0", "")), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// removeOurs removes what no attachment owns.
func (n *node) removeOurs(t *testing.T) {
	t.Helper()
	for _, table := range []string{"cnibox", "cnibox-forward"} {
		n.MustRun(t, "nft", "delete", "table", "inet", table)
	}
	for _, family := range []string{"iptables-", "ip6tables-"} {
		program := family + n.origin.flavour
		n.MustRun(t, program, "-D", "FORWARD", "-m", "comment", "--comment", "cnibox firewall", "-j", "CNIBOX-FORWARD")
		n.MustRun(t, program, "-F", "CNIBOX-FORWARD")
		n.MustRun(t, program, "-X", "CNIBOX-FORWARD")
	}
}
