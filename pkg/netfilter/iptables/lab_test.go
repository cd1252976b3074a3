package iptables

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

var keyOf, second, prefixes, addrs, must = netfiltertest.KeyOf, netfiltertest.KeyOfInterface, netfiltertest.Prefixes, netfiltertest.Addrs, netfiltertest.Must

// node is a host whose iptables is of one flavour.
type node struct {
	*netlab.Host
	flavour string
}

// eachFlavour runs a test on a host of each flavour. They are not parallel: the
// plain names are found by the PATH of the process.
func eachFlavour(t *testing.T, test func(t *testing.T, n *node)) {
	for _, fl := range []string{"nft", "legacy"} {
		t.Run(fl, func(t *testing.T) { test(t, newNode(t, fl)) })
	}
}

func newNode(t testing.TB, flavour string) *node {
	t.Helper()
	n := &node{netlab.NewHost(t), flavour}
	n.use(t, flavour)
	return n
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

// on returns the backend in the namespace of the calling thread.
func on(t testing.TB) *Backend {
	t.Helper()
	conn, err := nft.Open()
	must(t, err)
	return On(conn, nil)
}

func (n *node) add(t testing.TB, r Rules) { t.Helper(); must(t, n.tryAdd(t, r)) }

func (n *node) tryAdd(t testing.TB, r Rules) error {
	return n.try(func() error { return on(t).Add(ctx, r) })
}

func (n *node) check(t testing.TB, r Rules) error {
	return n.try(func() error { return on(t).Check(ctx, r) })
}

func (n *node) del(t testing.TB, k Kind, key plugin.Key, hint ...netip.Prefix) (ports []spec.PortMap) {
	t.Helper()
	must(t, n.try(func() (err error) {
		ports, err = on(t).Del(ctx, k, key, hint)
		return err
	}))
	return ports
}

// gc collects what a network's attachments have of all kinds.
func (n *node) gc(t testing.TB, network string, valid ...plugin.Key) {
	t.Helper()
	must(t, n.try(func() error {
		return held.GC(ctx, netfiltertest.GC(network, valid...), Masquerading, PortMapping, Forwarding)
	}))
}

// publish is what portmap asks for a container at 10.88.0.x/16 and fd00::x/64.
func publish(t testing.TB, texts ...string) spec.PortNeeds {
	t.Helper()
	p := spec.PortNeeds{Maps: netfiltertest.PortMaps(t, texts...), SNAT: true, MarkBit: 13}
	for _, m := range p.Maps {
		bits := 16
		if m.Container.Addr().Is6() {
			bits = 64
		}
		p.Networks = append(p.Networks, netip.PrefixFrom(m.Container.Addr(), bits))
	}
	return p
}

// try runs a function on the host.
func (n *node) try(what func() error) (err error) {
	n.Do(func() { err = what() })
	return err
}

// rules returns what iptables-save prints of a table, without comments, counters
// and the kernel's own chains.
func (n *node) rules(t testing.TB, f *family, table string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(n.MustRun(t, f.program+"-"+n.flavour+"-save", "-t", table)) {
		switch {
		case strings.HasPrefix(line, ":CNI-"), strings.HasPrefix(line, ":KUBE-"):
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
	n.restoreOf(t, &ipv4, table, lines...)
}

// restoreOf feeds the program of either family.
func (n *node) restoreOf(t testing.TB, f *family, table string, lines ...string) {
	t.Helper()
	n.Feed(t, "*"+table+"\n"+strings.Join(lines, "\n")+"\nCOMMIT\n", f.program+"-"+n.flavour+"-restore", "--noflush")
}

// kept returns the file of owners.
func (n *node) kept(t testing.TB) string {
	t.Helper()
	return n.MustRun(t, "sh", "-c", "cat "+state.RunFile(ownersFile)+" 2>/dev/null || exit 0")
}

// hidePrograms takes all programs of iptables away from the host until the
// returned function is called.
func (n *node) hidePrograms(t testing.TB) (back func()) {
	t.Helper()
	n.MustRun(t, "mount", "-t", "tmpfs", "tmpfs", "/usr/sbin")
	return func() { n.MustRun(t, "umount", "/usr/sbin") }
}

func same(t testing.TB, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// sorted puts lines in an order that does not depend on the flavour.
func sorted(text string) string {
	lines := slices.Sorted(strings.Lines(text))
	return strings.Join(lines, "")
}

// lines returns those with a text.
func lines(text, with string) string {
	return leaving(text, func(line string) bool { return !strings.Contains(line, with) })
}

func leaving(text string, drop func(string) bool) string {
	return strings.Join(slices.DeleteFunc(slices.Collect(strings.Lines(text)), drop), "")
}

func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want one with %q", err, w)
		}
	}
}

// both returns the rules of both families.
func (n *node) both(t testing.TB, table string) string {
	t.Helper()
	return n.rules(t, &ipv4, table) + n.rules(t, &ipv6, table)
}
