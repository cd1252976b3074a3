package upgrade

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/test/netlab"
)

// limits are of bandwidth: usual ones, and those that CRI-O asks for, whose burst is too large for what the reference plugins reckon with.
var limits = map[string]string{
	"usual": `"ingressRate": 10000000, "ingressBurst": 800000, "egressRate": 20000000, "egressBurst": 1600000`,
	"CRI-O": `"ingressRate": 300000, "ingressBurst": 34359738359, "egressRate": 2000000, "egressBurst": 34359738359`,
}

// limited is a network whose containers have limits.
func limited(cniVersion, keys string) string {
	return fmt.Sprintf(`{"cniVersion": %q, "name": "demo", "plugins": [
		{"type": "bridge", "bridge": "demo0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}},
		{"type": "bandwidth", %s}]}`, cniVersion, keys)
}

// limitedPods has the reference plugins attach two pods, and cnibox take over.
func limitedPods(t *testing.T, o origin, keys string) (n *node, kept, lost *attachment) {
	n = newNode(t, o)
	n.useReference(t)
	kept, lost = n.attachment(demo, n.NewPod(t, "kept"), "eth0", 0), n.attachment(demo, n.NewPod(t, "lost"), "eth0", 0)
	for _, a := range []*attachment{kept, lost} {
		if _, err := n.AddList(limited("1.0.0", keys), a.rt); err != nil {
			t.Fatalf("ADD %s: %v", a, err)
		}
	}
	n.useOurs(t)
	return n, kept, lost
}

// ifbs makes sure that the node has so many ifbs of attachments.
func (n *node) ifbs(t *testing.T, want int) {
	t.Helper()
	if ifbs := n.Snapshot(t).Lines("link bwp"); len(ifbs) != want {
		t.Errorf("want %d ifbs, got %q", want, ifbs)
	}
}

// TestUpgradeBandwidth has the reference plugins limit pods, and cnibox check and detach them.
func TestUpgradeBandwidth(t *testing.T) {
	netlab.Need(t, netlab.Shaping)
	t.Parallel()
	for name, keys := range limits {
		for way, detach := range map[string]func(t *testing.T, n *node, kept, lost *attachment){
			"DEL": func(t *testing.T, n *node, _, lost *attachment) { n.unlimit(t, lost, keys) },
			"DEL-by-key": func(t *testing.T, n *node, _, lost *attachment) {
				lost.pod.Delete(t)
				n.forget(t)
				n.unlimit(t, lost, `"latency": 25`)
			},
			"GC": func(t *testing.T, n *node, kept, lost *attachment) {
				lost.pod.Delete(t)
				n.MustRun(t, "rm", netlab.CacheDir+"/results/demo-"+lost.rt.ContainerID+"-eth0")
				valid := []types.GCAttachment{{ContainerID: kept.rt.ContainerID, IfName: "eth0"}}
				if err := n.GCList(limited("1.1.0", keys), &libcni.GCArgs{ValidAttachments: valid}); err != nil {
					t.Error(err)
				}
			},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				forEach(t, oneFlavour, func(t *testing.T, o origin) {
					n, kept, lost := limitedPods(t, o, keys)
					if err := n.CheckList(limited("1.0.0", keys), kept.rt); err != nil {
						t.Errorf("CHECK: %v", err)
					}
					n.ifbs(t, 2)
					detach(t, n, kept, lost)
					n.ifbs(t, 1)
					n.unlimit(t, kept, keys)
					n.ifbs(t, 0)
				})
			})
		}
	}
}

// TestRollbackBandwidth has cnibox limit a pod, and the reference plugins check and detach it.
func TestRollbackBandwidth(t *testing.T) {
	netlab.Need(t, netlab.Shaping)
	t.Parallel()
	forEach(t, oneFlavour, func(t *testing.T, o origin) {
		n := newNode(t, o)
		n.useOurs(t)
		a := n.attachment(demo, n.NewPod(t, "pod"), "eth0", 0)
		if _, err := n.AddList(limited("1.0.0", limits["usual"]), a.rt); err != nil {
			t.Fatal(err)
		}
		n.useReference(t)
		if err := n.CheckList(limited("1.0.0", limits["usual"]), a.rt); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		n.unlimit(t, a, limits["usual"])
		n.ifbs(t, 0)
	})
}

// unlimit calls DEL.
func (n *node) unlimit(t *testing.T, a *attachment, keys string) {
	t.Helper()
	if err := n.DelList(limited("1.0.0", keys), a.rt); err != nil {
		t.Errorf("DEL %s: %v", a, err)
	}
}

// oneFlavour is wanted where nothing is in the packet filter.
func oneFlavour(o origin) bool { return o.usesIPTables() && o.flavour == "nft" }
