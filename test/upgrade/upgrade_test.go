package upgrade

import (
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// TestUpgrade has the reference plugins attach pods and cnibox detach them.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name   string
		detach func(t *testing.T, n *node, pods []*attachment)
		left   []string // what stays because nothing says whose it is
	}{
		{"DEL", detachOneByOne, nil},
		{"DEL-without-netns", func(t *testing.T, n *node, pods []*attachment) {
			deletePods(t, pods)
			for _, a := range pods {
				n.del(t, a, "1.1.0", n.origin.backend)
			}
		}, nil},
		{"DEL-by-key", func(t *testing.T, n *node, pods []*attachment) {
			deletePods(t, pods)
			n.forget(t)
			for _, a := range pods {
				a.rt.CapabilityArgs = nil
				n.del(t, a, "1.1.0", "")
			}
		}, forwardRules()},
		{"GC", func(t *testing.T, n *node, pods []*attachment) {
			deletePods(t, pods)
			n.collect(t)
		}, nil},
		{"GC-by-key", func(t *testing.T, n *node, pods []*attachment) {
			deletePods(t, pods)
			n.forget(t)
			n.collect(t)
		}, forwardRules()},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			forEach(t, all, func(t *testing.T, o origin) {
				n := newNode(t, o)
				n.useReference(t)
				pods := n.pods(t)
				for _, a := range pods {
					n.add(t, a, o.backend)
				}
				n.useOurs(t)
				way.detach(t, n, pods)
				n.nothingLeft(t, way.left...)
			})
		})
	}
}

// detachOneByOne makes sure that no DEL takes anything from those that are left.
func detachOneByOne(t *testing.T, n *node, pods []*attachment) {
	for i, a := range pods {
		for _, b := range pods[i:] {
			n.reached(t, b)
		}
		n.del(t, a, "1.1.0", n.origin.backend)
	}
	n.noVeths(t)
}

func deletePods(t *testing.T, pods []*attachment) {
	t.Helper()
	gone := map[string]bool{}
	for _, a := range pods {
		if !gone[a.pod.Name()] {
			gone[a.pod.Name()] = true
			a.pod.Delete(t)
		}
	}
}

// collect calls GC for both networks with an empty list.
func (n *node) collect(t *testing.T) {
	t.Helper()
	for _, w := range []network{demo, other} {
		err := n.GCList(w.conflist("1.1.0", n.origin.backend), &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}})
		if err != nil {
			t.Errorf("GC %s: %v", w.name, err)
		}
	}
}

// TestCheckAfterUpgrade: running pods are fine as they are. A rule of the
// reference plugins in nftables is not looked for.
func TestCheckAfterUpgrade(t *testing.T) {
	t.Parallel()
	forEach(t, origin.usesIPTables, func(t *testing.T, o origin) {
		n := newNode(t, o)
		n.useReference(t)
		pods := n.pods(t)
		for _, a := range pods {
			n.add(t, a, o.backend)
		}
		n.useOurs(t)
		for _, a := range pods {
			n.check(t, a, o.backend)
			n.reached(t, a)
		}
	})
}

// TestAddBesideReference: after an upgrade new pods come to old ones.
func TestAddBesideReference(t *testing.T) {
	t.Parallel()
	forEach(t, all, func(t *testing.T, o origin) {
		n := newNode(t, o)
		n.useReference(t)
		old := n.attachment(demo, n.NewPod(t, "old"), "eth0", 8080)
		n.add(t, old, o.backend)
		n.useOurs(t)
		young := n.attachment(demo, n.NewPod(t, "young"), "eth0", 8081)
		n.add(t, young, o.backend)
		n.reached(t, old)
		n.reached(t, young)
		n.del(t, old, "1.0.0", o.backend)
		n.reached(t, young)
		n.del(t, young, "1.0.0", o.backend)
	})
}
