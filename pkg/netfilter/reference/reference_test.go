package reference

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

const cacheDir = "/var/lib/cni/results"

// key reads "net/cid/eth0".
func key(text string) plugin.Key {
	parts := strings.Split(text, "/")
	return plugin.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}
}

// request is one for an attachment.
func request(text string) *plugin.Request {
	return &plugin.Request{Key: key(text), Results: cacheDir}
}

// valid is a GC of a network.
func valid(network string, attachments ...string) *plugin.Request {
	r := &plugin.Request{Key: plugin.Key{Network: network}, Results: cacheDir}
	for _, a := range attachments {
		r.Valid = append(r.Valid, key(a))
	}
	return r
}

var prefixes = netfiltertest.Prefixes

// masqueraded is the reference's table with an address for each attachment.
func masqueraded(attachments ...string) string {
	var rules strings.Builder
	for i, a := range attachments {
		if a == "" {
			continue // whose address nobody has
		}
		k := key(a)
		comment := fmt.Sprintf("%s, net: %s, if: %s, id: %s", attachmentHash(k), k.Network, k.IfName, k.ContainerID)
		comment = comment[:min(len(comment), 128)]
		fmt.Fprintf(&rules, "ip saddr 10.88.0.%d ip daddr != 10.88.0.0/24 masquerade comment \"%s\"\n", i+2, comment)
		fmt.Fprintf(&rules, "ip6 saddr fd00::%d ip6 daddr != fd00::/64 masquerade comment \"%s\"\n", i+2, comment)
	}
	return `table inet cni_plugins_masquerade {
		comment "Masquerading for plugins from github.com/containernetworking/plugins"
		chain masq_checks { ` + "\n" + rules.String() + ` }
		chain postrouting {
			type nat hook postrouting priority srcnat; policy accept;
			ip daddr 224.0.0.0/4 return
			ip6 daddr ff00::/8 return
			goto masq_checks
		}
	}`
}

// published is the reference's tables of both families, with the same ports of
// containers, given as "cid=last byte of the address".
func published(containers ...string) string {
	var text strings.Builder
	for _, f := range []struct{ family, ip, net, loopback string }{{"ip", "ip", "10.88.0.", "127.0.0.1"}, {"ip6", "ip6", "fd00::", ""}} {
		var ports, onAddress, masquerading strings.Builder
		for _, c := range containers {
			id, last, _ := strings.Cut(c, "=")
			addr := f.net + last
			to := netip.AddrPortFrom(netip.MustParseAddr(addr), 80)
			fmt.Fprintf(&ports, "tcp dport 80%s dnat to %s comment \"%s\"\n", last, to, id)
			fmt.Fprintf(&onAddress, "%s daddr %s1 udp dport 80%s dnat to %s comment \"%s\"\n", f.ip, f.net, last, to, id)
			fmt.Fprintf(&masquerading, "%[1]s saddr %[2]s %[1]s daddr %[2]s masquerade comment \"%[3]s\"\n", f.ip, addr, id)
			if f.loopback != "" {
				fmt.Fprintf(&masquerading, "%[1]s saddr %[2]s %[1]s daddr %[3]s masquerade comment \"%[4]s\"\n", f.ip, f.loopback, addr, id)
			}
		}
		fmt.Fprintf(&text, `table %s cni_hostport {
			comment "CNI portmap plugin"
			chain hostports { %s }
			chain hostip_hostports { %s }
			chain hostports_all {
				jump hostip_hostports
				jump hostports
			}
			chain prerouting {
				type nat hook prerouting priority dstnat; policy accept;
				fib daddr type local jump hostports_all
			}
			chain output {
				type nat hook output priority -100; policy accept;
				fib daddr type local jump hostports_all
			}
			chain masquerading {
				type nat hook postrouting priority srcnat; policy accept;
				%s
			}
		}
		`, f.family, "\n"+ports.String(), "\n"+onAddress.String(), "\n"+masquerading.String())
	}
	return text.String()
}

// cached puts an entry in libcni's cache for each attachment.
func cached(t testing.TB, attachments ...string) {
	t.Helper()
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, a := range attachments {
		k := key(a)
		entry := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":%q,"networkName":%q,"result":{}}`, k.ContainerID, k.IfName, k.Network)
		write(t, strings.ReplaceAll(a, "/", "-"), entry)
	}
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cacheDir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// load replaces the host's ruleset.
func load(t testing.TB, h *netlab.Host, text string) {
	t.Helper()
	h.MustRun(t, "nft", "flush", "ruleset")
	h.Feed(t, text, "nft", "-f", "-")
}

// same makes sure that the host's ruleset is as if only text had been loaded.
func same(t testing.TB, h *netlab.Host, text string) {
	t.Helper()
	expected := netlab.NewHost(t)
	if text != "" {
		load(t, expected, text)
	}
	if diff := expected.Snapshot(t).Diff(h.Snapshot(t), "file", "mount"); diff != "" {
		t.Errorf("not as expected:\n%s", diff)
	}
}

// conn returns a connection of the calling thread's.
func conn(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open()
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// on does something over a connection to a host.
func on(t testing.TB, h *netlab.Host, do func(*nft.Conn) error) error {
	t.Helper()
	var err error
	h.Do(func() {
		var c *nft.Conn
		if c, err = nft.Open(); err == nil {
			defer c.Close()
			err = do(c)
		}
	})
	return err
}

// TestForeignThingsStay checks that a table with anything of an administrator's in it
// is not removed.
func TestForeignThingsStay(t *testing.T) {
	t.Parallel()
	const own = "net/cid/eth0"
	for name, foreign := range map[string]string{
		"a chain":            "table inet cni_plugins_masquerade { chain mine { }\n}",
		"a rule":             "table inet cni_plugins_masquerade { chain masq_checks { ip saddr 10.1.1.1 masquerade; }\n}",
		"a rule with a name": "table inet cni_plugins_masquerade { chain masq_checks { ip saddr 10.1.1.1 masquerade comment mine; }\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			load(t, h, masqueraded(own)+"\n"+foreign)
			if err := on(t, h, func(c *nft.Conn) error { return MasqueradeRules{request(own)}.Del(ctx, c, nil) }); err != nil {
				t.Error(err)
			}
			same(t, h, masqueraded()+"\n"+foreign)
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	load(t, h, masqueraded("net/cid/eth0"))
	over, cancel := context.WithCancel(ctx)
	cancel()
	err := on(t, h, func(c *nft.Conn) error { return MasqueradeRules{request("net/cid/eth0")}.Del(over, c, nil) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	same(t, h, masqueraded("net/cid/eth0"))
}
