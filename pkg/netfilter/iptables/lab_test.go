package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// node is a host whose iptables is of one flavour.
type node struct {
	*netlab.Host
	flavour string
}

// eachFlavour runs a test on a host of each flavour. They are not parallel: the
// plain names are found by the PATH of the process.
func eachFlavour(t *testing.T, test func(t *testing.T, n *node)) {
	for _, fl := range []string{"nft", "legacy"} {
		t.Run(fl, func(t *testing.T) {
			n := &node{netlab.NewHost(t), fl}
			n.use(t, fl)
			test(t, n)
		})
	}
}

// use makes the plain names those of a flavour from now on.
func (n *node) use(t testing.TB, flavour string) {
	t.Helper()
	n.flavour = flavour
	n.UseIPTables(t, flavour)
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			target, err := exec.LookPath(family + "-" + flavour + verb)
			must(t, err)
			must(t, os.Symlink(target, filepath.Join(dir, family+verb)))
		}
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// uses is the backend with a method for each use and verb.
type uses struct{ *Backend }

// New returns the backend in the namespace of the calling thread.
func New() uses {
	conn, err := nft.Open()
	if err != nil {
		panic(err)
	}
	return uses{On(conn)}
}

func (u uses) AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return u.Add(ctx, key, Masquerade(key, addrs))
}

func (u uses) CheckMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return u.Check(ctx, key, Masquerade(key, addrs))
}

func (u uses) DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := u.Del(ctx, Masquerading, key, hint)
	return err
}

func (u uses) GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	return u.gc(Masquerading, network, valid)
}

func (u uses) AddPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	return u.Add(ctx, key, PortMaps(key, ports))
}

func (u uses) CheckPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	return u.Check(ctx, key, PortMaps(key, ports))
}

func (u uses) DelPortMaps(ctx context.Context, key plugin.Key, hint []netip.Prefix) ([]netfilter.PortMap, error) {
	return u.Del(ctx, PortMapping, key, hint)
}

func (u uses) GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	return u.gc(PortMapping, network, valid)
}

func (u uses) AddForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	return u.Add(ctx, key, Forward(f))
}

func (u uses) CheckForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	return u.Check(ctx, key, Forward(f))
}

func (u uses) DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := u.Del(ctx, Forwarding, key, hint)
	return err
}

func (u uses) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	return u.gc(Forwarding, network, valid)
}

func (u uses) gc(k Kind, network string, valid []plugin.Key) error {
	r := &plugin.Request{Key: plugin.Key{Network: network}}
	for _, key := range valid {
		r.Valid = append(r.Valid, plugin.Attachment{ContainerID: key.ContainerID, IfName: key.IfName})
	}
	return held.GC(ctx, r, u.Store(k))
}

func keyOf(id string) plugin.Key { return second(id, "eth0") }

func second(id, ifName string) plugin.Key {
	return plugin.Key{Network: "net", ContainerID: id, IfName: ifName}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// portMap reads "tcp/8080=10.88.0.2:80" and "udp/192.0.2.1:53=10.88.0.2:53".
func portMap(t testing.TB, s string) netfilter.PortMap {
	t.Helper()
	host, container, _ := strings.Cut(s, "=")
	name, port, _ := strings.Cut(host, "/")
	m := netfilter.PortMap{Container: netip.MustParseAddrPort(container)}
	m.Protocol, _ = netfilter.Protocol(name)
	if a, err := netip.ParseAddrPort(port); err == nil {
		m.HostIP, m.HostPort = a.Addr(), a.Port()
		return m
	}
	if _, err := fmt.Sscan(port, &m.HostPort); err != nil {
		t.Fatal(err)
	}
	return m
}

// publish is what portmap asks for a container at 10.88.0.x/16 and fd00::x/64.
func publish(t testing.TB, texts ...string) netfilter.PortMaps {
	t.Helper()
	p := netfilter.PortMaps{SNAT: true, MarkBit: 13}
	for _, s := range texts {
		m := portMap(t, s)
		p.Maps = append(p.Maps, m)
		bits := 16
		if m.Container.Addr().Is6() {
			bits = 64
		}
		p.Networks = append(p.Networks, netip.PrefixFrom(m.Container.Addr(), bits))
	}
	return p
}

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do runs a function on the host and wants no error.
func (n *node) do(t testing.TB, what func() error) {
	t.Helper()
	must(t, n.try(what))
}

func (n *node) try(what func() error) (err error) {
	n.Do(func() { err = what() })
	return err
}

// rules returns what iptables-save prints of a table, without comments, counters
// and the kernel's own chains.
func (n *node) rules(t testing.TB, f *family, table string) string {
	t.Helper()
	prefix := "iptables-"
	if f == &ipv6 {
		prefix = "ip6tables-"
	}
	var lines []string
	for line := range strings.Lines(n.MustRun(t, prefix+n.flavour+"-save", "-t", table)) {
		switch {
		case strings.HasPrefix(line, ":CNI-"), strings.HasPrefix(line, ":KUBE-"), strings.HasPrefix(line, ":DOCKER"):
			lines = append(lines, strings.Fields(line)[0]+"\n")
		case strings.HasPrefix(line, "-A "):
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// restore feeds iptables-restore.
func (n *node) restore(t testing.TB, table string, lines ...string) {
	t.Helper()
	n.Feed(t, "*"+table+"\n"+strings.Join(lines, "\n")+"\nCOMMIT\n", "iptables-"+n.flavour+"-restore", "--noflush")
}

// kept returns the file of owners.
func (n *node) kept(t testing.TB) string {
	t.Helper()
	return n.MustRun(t, "sh", "-c", "cat "+ownersFile+" 2>/dev/null || exit 0")
}

// hidePrograms takes all programs of iptables away from the host until the
// returned function is called.
func (n *node) hidePrograms(t testing.TB) (back func()) {
	t.Helper()
	n.MustRun(t, "mount", "-t", "tmpfs", "tmpfs", "/usr/sbin")
	return func() { n.MustRun(t, "umount", "/usr/sbin") }
}
