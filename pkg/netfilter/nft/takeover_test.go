package nft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
	"github.com/cnibox/cnibox/test/netlab"
)

// cacheResult writes what libcni keeps of an attachment; format has %q for the
// namespace's path, if it is not all.
func cacheResult(t *testing.T, results string, key plugin.Key, text string) {
	t.Helper()
	name := filepath.Join(results, key.Network+"-"+key.ContainerID+"-"+key.IfName)
	must(t, os.WriteFile(name, []byte(text), 0o600))
}

func resultOf(key plugin.Key, path string) string {
	return fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":"e30=","ifName":%q,"networkName":%q,"netns":%q,"result":{}}`,
		key.ContainerID, key.IfName, key.Network, path)
}

// TestTakeOver: what is known of an owner is in pkg/presence.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	owner := keyOf("owner")
	long := keyOf(strings.Repeat("0123456789abcdef", 8))
	odd := keyOf("owner")
	odd.IfName = `a"b`
	for _, tt := range []struct {
		name  string
		owner plugin.Key
		cache string // "": none; {}: of the host's namespace
		known string // "": taken over
	}{
		{"path is gone", owner, resultOf(owner, "/run/netns/gone"), ""},
		{"runs", owner, resultOf(owner, "/proc/self/ns/net"), "/proc/self/ns/net does not have its interface eth0"},
		{"no cache", owner, "", "it is not known whether it runs"},
		{"an empty cache", owner, " ", "is not JSON"},
		{"another attachment's cache", owner, resultOf(keyOf("x"), "/run/netns/gone"), "is about another attachment"},
		{"shortened comment", long, resultOf(long, "/run/netns/gone"), "can't be told from the table"},
		{"comment with a character replaced", odd, resultOf(odd, "/run/netns/gone"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			addLink(t, h, "cni0")
			addLink(t, h, "p2p0")
			table := open(t, h)
			theirs := behind("p2p0", portMaps(t, "tcp/8080=10.88.0.2:80", "udp/53=10.88.0.2:53", "tcp/[2001:db8::1]:443=[fd00::2]:443"))
			theirs.InsideShared = false
			ours := behind("cni0", portMaps(t, "tcp/8080=10.88.0.3:80", "udp/53=10.88.0.3:53"))
			ours.Results = t.TempDir()
			if tt.cache != "" {
				cacheResult(t, ours.Results, tt.owner, tt.cache)
			}
			var err error
			h.Do(func() {
				must(t, table.Add(ctx, tt.owner, ToMasquerade(prefixes("10.88.0.2/24"))))
				must(t, table.Add(ctx, tt.owner, ToPublish(theirs)))
				must(t, table.Add(ctx, keyOf("third"), ToPublish(behind("cni0", portMaps(t, "tcp/9000=10.88.0.9:80")))))
				err = table.Add(ctx, keyOf("new"), ToPublish(ours))
			})
			h.Do(func() {
				must(t, table.Check(tt.owner, ToMasquerade(prefixes("10.88.0.2/24"))))
				must(t, table.Check(keyOf("third"), ToPublish(behind("cni0", portMaps(t, "tcp/9000=10.88.0.9:80")))))
			})
			if tt.known != "" {
				var shown *types.Error
				if !errors.As(err, &shown) || shown.Code != types.ErrTryAgainLater || shown.Msg != "host port tcp/8080 is already published by "+ownerOf(tt.owner, Publishing).comment || !strings.Contains(shown.Details, tt.known) {
					t.Errorf("%v; want %q", err, tt.known)
				}
				h.Do(func() { must(t, table.Check(tt.owner, ToPublish(theirs))) })
				return
			}
			must(t, err)
			h.Do(func() {
				must(t, table.Check(keyOf("new"), ToPublish(ours)))
				if left := delPorts(t, table, tt.owner); left != nil { // late
					t.Errorf("the old owner still had %v", left)
				}
				must(t, table.Check(keyOf("new"), ToPublish(ours)))
				if allowed, err := sysctl.AllowsLocalhost("p2p0"); allowed || err != nil {
					t.Errorf("route_localnet of the old owner's link is %v, %v", allowed, err)
				}
			})
			if got := listing(t, h); strings.Contains(got, "tcp . 443") || strings.Contains(got, "p2p0") {
				t.Errorf("the old owner's other ports are still there:\n%s", got)
			}
		})
	}
}
