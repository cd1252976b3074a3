package reference

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/held"
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

// store is what the reference plugins have for a request.
type store interface {
	plugin.Store
	Del(ctx context.Context, c *nft.Conn, hint []netip.Prefix) error
}

func masquerade(r *plugin.Request) store { return MasqueradeRules{r} }
func ports(r *plugin.Request) store      { return PortRules{r} }
func spoofCheck(r *plugin.Request) store { return SpoofChains{r} }

// del is a DEL of an attachment that had these addresses, if they are known.
func del(of func(*plugin.Request) store, attachment string, addrs ...string) func(*nft.Conn) error {
	return func(c *nft.Conn) error {
		return of(request(attachment)).Del(ctx, c, netfiltertest.Prefixes(addrs...))
	}
}

// gc is a GC of a network.
func gc(of func(*plugin.Request) store, network string, valid ...string) func(*nft.Conn) error {
	return func(*nft.Conn) error {
		r := &plugin.Request{Key: plugin.Key{Network: network}, Results: cacheDir}
		for _, a := range valid {
			r.Valid = append(r.Valid, key(a))
		}
		return held.GC(ctx, r, of(r))
	}
}

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
	}
`
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

// spoofChecked is the reference's table with a check of each "container-interface".
func spoofChecked(names ...string) string {
	var chains, jumps strings.Builder
	for i, name := range names {
		if name == "" {
			continue // whose link nobody has
		}
		comment := `comment "macspoofchk-` + name + `"`
		fmt.Fprintf(&chains, "chain cni-br-iface-%[1]s-mac { ether saddr 02:00:00:00:00:01 return %[2]s\ndrop %[2]s\n}\n", name, comment)
		fmt.Fprintf(&chains, "chain cni-br-iface-%[1]s { jump cni-br-iface-%[1]s-mac %[2]s\n}\n", name, comment)
		fmt.Fprintf(&jumps, "iifname \"veth%d\" jump cni-br-iface-%s %s\n", i, name, comment)
	}
	return "table bridge nat {\n" + chains.String() + "chain PREROUTING {\ntype filter hook prerouting priority -300; policy accept;\n" + jumps.String() + "}\n}\n"
}

// cached puts an entry in libcni's cache for each attachment. What is none is the text of an entry that can't be read, and may be about anything.
func cached(t testing.TB, attachments []string) {
	t.Helper()
	must(t, os.MkdirAll(cacheDir, 0o700))
	for _, a := range attachments {
		name, entry := "b-1-eth0", a
		if strings.Count(a, "/") == 2 {
			k := key(a)
			name = strings.ReplaceAll(a, "/", "-")
			entry = fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":%q,"networkName":%q,"result":{}}`, k.ContainerID, k.IfName, k.Network)
		}
		must(t, os.WriteFile(filepath.Join(cacheDir, name), []byte(entry), 0o600))
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

// TestRemove takes away what is an attachment's, or what nobody valid has, and nothing else. DEL of one and GC of all are in test/upgrade.
func TestRemove(t *testing.T) {
	t.Parallel()
	const (
		own           = "a/1/eth0"
		long          = "a/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-whose-comment-is-cut/eth0"
		v4, v6        = "10.88.0.2/24", "fd00::2/64"
		notMasquerade = "table inet cni_plugins_masquerade {\nchain mine { }\nchain masq_checks { ip saddr 10.1.1.1 masquerade; ip saddr 10.1.1.2 masquerade comment mine; }\n}\n"
		onePort       = "table ip cni_hostport { chain hostports { tcp dport 80 dnat to 10.88.0.2:80 comment \"1\"; }\n}\n"
		noPort        = "table ip cni_hostport { chain hostports { }\n}\n"
		notPorts      = "table ip cni_hostport { chain hostports { tcp dport 81 accept comment \"1\"; tcp dport 82 dnat to 10.88.0.2:80; }\n}\n"
		again         = "table bridge nat { chain PREROUTING { iifname \"veth0\" jump cni-br-iface-1-eth0; }\n}\n" // of a second ADD
		notSpoofCheck = "table bridge nat {\nset other { type ether_addr; }\nchain other { }\nchain PREROUTING { type filter hook prerouting priority -300; policy drop; counter; }\n}\n"
	)
	for _, tt := range []struct {
		name, before string
		cache        []string // nil: there is none
		call         func(*nft.Conn) error
		then         string
	}{
		{"masquerading of one of several", masqueraded(own, "a/1/eth1", "a/2/eth0", "b/1/eth0"), nil, del(masquerade, own), masqueraded("", "a/1/eth1", "a/2/eth0", "b/1/eth0")},
		{"masquerading of a long name", masqueraded(long), nil, del(masquerade, long), masqueraded()},
		{"masquerading beside somebody else's", masqueraded(own) + notMasquerade, nil, del(masquerade, own), masqueraded() + notMasquerade},
		{"GC of masquerading", masqueraded(own, "a/2/eth0", long, "b/1/eth0"), nil, gc(masquerade, "a", own, "a/2/eth1", long), masqueraded(own, "", long, "b/1/eth0")},

		{"ports of another attachment", published("1=2", "1=3"), nil, del(ports, own, v4, v6), published("1=3")},
		{"ports of another container", published("2=2", "1=3"), nil, del(ports, own, v4, v6), published("2=2", "1=3")},
		{"ports without tables of IPv6 and masquerading", onePort, nil, del(ports, own, v4), noPort},
		{"ports, addresses not known, own entry", published("1=2", "2=3"), []string{own, "a/2/eth0"}, del(ports, own), published("2=3")},
		{"ports, addresses not known, no entry", published("1=2", "2=3"), []string{"b/2/eth0"}, del(ports, own), published("2=3")},
		{"ports, addresses not known, no cache", published("1=2", "2=3"), nil, del(ports, own), published("2=3")},
		{"ports, addresses not known, another network", published("1=2"), []string{own, "b/1/eth0"}, del(ports, own), published("1=2")},
		{"ports, addresses not known, another interface", published("1=2"), []string{own, "a/1/eth1"}, del(ports, own), published("1=2")},
		{"ports, addresses not known, a name that looks like it", published("1=2"), []string{"a-1-b/3/eth0"}, del(ports, own), published()},
		{"ports, addresses not known, a torn entry", published("1=2"), []string{`{"kind":"cniC`}, del(ports, own), published("1=2")},
		{"ports, addresses not known, an old entry", published("1=2"), []string{`{"cniVersion":"0.4.0"}`}, del(ports, own), published("1=2")},
		{"ports, addresses not known, an empty entry", published("1=2"), []string{""}, del(ports, own), published("1=2")},
		{"GC of ports", published("1=2", "2=3"), []string{}, gc(ports, "a", "a/2/eth0"), published("2=3")},
		{"GC of ports of a container of another network", published("1=2", "2=3"), []string{"b/1/eth0"}, gc(ports, "a"), published("1=2")},
		{"GC of ports without a cache", published("1=2"), nil, gc(ports, "a"), published("1=2")},
		{"GC of ports beside somebody else's", published("1=2") + notPorts, []string{}, gc(ports, "a"), published() + notPorts},

		{"spoof check of one of two", spoofChecked("1-eth0", "2-eth0") + again, nil, del(spoofCheck, own), spoofChecked("", "2-eth0")},
		{"spoof check beside somebody else's", spoofChecked("1-eth0") + notSpoofCheck, nil, del(spoofCheck, own), spoofChecked() + notSpoofCheck},
		{"no spoof check", "table bridge nat { }", nil, del(spoofCheck, own), "table bridge nat { }"},
		{"GC of spoof checks", spoofChecked("1-eth0", "b-c-eth0", "gone-eth0"), []string{"other/b-c/eth1"}, gc(spoofCheck, "a", own), spoofChecked("1-eth0", "b-c-eth0")},
		{"GC of spoof checks without a cache", spoofChecked("1-eth0"), nil, gc(spoofCheck, "a"), spoofChecked("1-eth0")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			load(t, h, tt.before)
			must(t, on(t, h, func(c *nft.Conn) error {
				if tt.cache != nil {
					cached(t, tt.cache)
				}
				return tt.call(c)
			}))
			same(t, h, tt.then)
		})
	}
}

func TestConcurrentDel(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	var all []string
	for i := range 64 {
		all = append(all, fmt.Sprintf("a/%d/eth0", i))
	}
	load(t, h, masqueraded(all...))
	var wg sync.WaitGroup
	for _, a := range all {
		wg.Go(func() { must(t, on(t, h, del(masquerade, a))) })
	}
	wg.Wait()
	same(t, h, masqueraded())
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
