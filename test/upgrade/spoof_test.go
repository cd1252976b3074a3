package upgrade

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/test/netlab"
)

// spoofChecked is a network whose containers may only send from their own MAC
// address.
func spoofChecked(cniVersion string) string {
	return fmt.Sprintf(`{
  "cniVersion": %q, "name": "checked",
  "plugins": [{"type": "bridge", "bridge": "checked0", "macspoofchk": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.66.0.0/24"}]]}}]
}`, cniVersion)
}

// TestUpgradeSpoofCheck removes the chains that the reference plugins bind to
// the names of links.
func TestUpgradeSpoofCheck(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(n *node, rt *libcni.RuntimeConf) error{
		"DEL": func(n *node, rt *libcni.RuntimeConf) error { return n.DelList(spoofChecked("1.0.0"), rt) },
		"GC": func(n *node, _ *libcni.RuntimeConf) error {
			return n.GCList(spoofChecked("1.1.0"), &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}})
		},
	} {
		for _, o := range []origin{{name: "1.9.1", dir: netlab.Reference, flavour: "nft"}, {name: "1.1.1", dir: netlab.Debian, flavour: "nft"}} {
			t.Run(name+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, o)
				n.useReference(t)
				pod := n.NewPod(t, "one")
				rt := pod.RuntimeConf(nil)
				if _, err := n.AddList(spoofChecked("1.0.0"), rt); err != nil {
					t.Fatal(err)
				}
				n.useOurs(t)
				pod.Delete(t)
				n.forget(t)
				if err := remove(n, rt); err != nil {
					t.Error(err)
				}
				n.nothingLeft(t)
				for _, line := range n.Snapshot(t).Lines("nft table bridge nat") {
					if strings.Contains(line, pod.ID) {
						t.Errorf("left behind: %s", line)
					}
				}
			})
		}
	}
}
