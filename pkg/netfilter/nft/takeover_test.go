package nft

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestTakeOver takes ports over from an owner that is gone, and nothing else of it. Whether it is gone is only known of one whose whole name the table has.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	odd := keyOf("owner")
	odd.IfName = `a"b`
	for owner, known := range map[plugin.Key]string{odd: "", keyOf(strings.Repeat("0123456789abcdef", 8)): "can't be told from the table"} {
		t.Run(owner.ContainerID, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			addLink(t, h, "cni0")
			c, results := open(t, h), t.TempDir()
			// What libcni keeps of the owner.
			text := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":%q,"networkName":%q,"netns":"/run/netns/gone","result":{}}`, owner.ContainerID, owner.IfName, owner.Network)
			must(t, os.WriteFile(filepath.Join(results, strings.Join([]string{owner.Network, owner.ContainerID, owner.IfName}, "-")), []byte(text), 0o600))
			theirs := ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80", "tcp/[2001:db8::1]:443=[fd00::2]:443")))
			ports := behind("cni0", portMaps(t, "tcp/8080=10.88.0.3:80"))
			ports.Results = results
			h.Do(func() {
				must(t, c.Add(ctx, owner, ToMasquerade(prefixes("10.88.0.2/24"))))
				must(t, c.Add(ctx, owner, theirs))
				err := c.Add(ctx, keyOf("new"), ToPublish(ports))
				must(t, c.Check(owner, ToMasquerade(prefixes("10.88.0.2/24"))))
				if known != "" {
					if e := plugin.AsError(err); err == nil || !strings.Contains(e.Details, known) {
						t.Errorf("%v; want %q", err, known)
					}
					must(t, c.Check(owner, theirs))
					return
				}
				must(t, err)
				if left := delPorts(t, c, owner); left != nil { // late
					t.Errorf("the old owner still had %v", left)
				}
				must(t, c.Check(keyOf("new"), ToPublish(ports)))
			})
			if got := listing(t, h); strings.Contains(got, "tcp . 443") != (known != "") {
				t.Errorf("the old owner's other port:\n%s", got)
			}
		})
	}
}
