package lease

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// bench is a store in a directory of its own.
type bench struct {
	*testing.T
	*Store
	dataDir string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	s, err := NewStore(dir, "net", "")
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, s, dir}
}

func att(id, ifName string) plugin.Key {
	return plugin.Key{Network: "net", ContainerID: id, IfName: ifName}
}

// add allocates and returns the addresses as one text.
func (b *bench) add(id string, pools ...ranges.Pool) string {
	b.Helper()
	leases, err := b.Allocate(b.Context(), att(id, "eth0"), pools)
	if err != nil {
		b.Fatalf("ADD of %s: %v", id, err)
	}
	return texts(leases)
}

func (b *bench) addFails(id string, pools ...ranges.Pool) error {
	b.Helper()
	leases, err := b.Allocate(b.Context(), att(id, "eth0"), pools)
	if err == nil {
		b.Fatalf("ADD of %s got %s, want an error", id, texts(leases))
	}
	return err
}

func (b *bench) del(id, ifName, want string) {
	b.Helper()
	leases, err := b.Release(b.Context(), att(id, ifName))
	if err != nil {
		b.Fatalf("DEL of %s: %v", id, err)
	}
	if texts(leases) != want {
		b.Errorf("DEL of %s gave back %q, want %q", id, texts(leases), want)
	}
}

func texts(leases []Lease) string {
	var all []netip.Addr
	for _, l := range leases {
		all = append(all, l.Address)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return strings.Trim(fmt.Sprint(all), "[]")
}

// put makes a file of the store as someone else would.
func (b *bench) put(name, content string) {
	b.Helper()
	if err := os.MkdirAll(b.Path(), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Path(), name), []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
}

// files returns the names and contents in the store's directory.
func (b *bench) files() map[string]string {
	b.Helper()
	entries, err := os.ReadDir(b.Path())
	if err != nil {
		b.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		data, _ := os.ReadFile(filepath.Join(b.Path(), e.Name()))
		all[e.Name()] = string(data)
	}
	return all
}

func (b *bench) hasFiles(want map[string]string) {
	b.Helper()
	if got := b.files(); !maps.Equal(got, want) {
		b.Errorf("the directory holds %q\nwant %q", got, want)
	}
}

// isTrusted reports whether the next session would trust the index.
func (b *bench) isTrusted() bool {
	b.Helper()
	return openIndex(b.indexPath, b.path).trusted
}

// leases returns all leases of the network.
func (b *bench) leases() []Lease {
	b.Helper()
	leases, err := b.scan()
	if err != nil {
		b.Fatal(err)
	}
	return leases
}

var small = pool(0, "10.1.2.1-10.1.2.4!10.1.2.1") // .2 .3 .4

// Links that lead out of the directory, and files that can be no lease, are neither followed nor taken for one.
func TestForeignFilesStay(t *testing.T) {
	b := newBench(t)
	outside := filepath.Join(b.dataDir, "outside")
	link := func(name string) {
		t.Helper()
		if err := os.Symlink(outside, filepath.Join(b.Path(), name)); err != nil {
			t.Fatal(err)
		}
	}
	b.put("10.1.2.2", strings.Repeat("x", maxContent+1))
	b.put("../outside", "a\r\neth0")
	link("10.1.2.3")
	b.del("a", "eth0", "")
	if got := b.add("a", small); got != "10.1.2.4" {
		t.Errorf("got %s, want the address no file is named by", got)
	}
	b.collect()
	if err := os.Remove(filepath.Join(b.Path(), "last_reserved_ip.0")); err != nil {
		t.Fatal(err)
	}
	link("last_reserved_ip.0")
	if err := b.addFails("a", small); plugin.AsError(err).Code != types.ErrIOFailure || !strings.Contains(err.Error(), "last_reserved_ip.0") {
		t.Errorf("without a note of where to search next: %v", err)
	}
	b.hasFiles(map[string]string{
		"lock": "", "10.1.2.2": strings.Repeat("x", maxContent+1), "10.1.2.3": "a\r\neth0", "last_reserved_ip.0": "a\r\neth0", // both as outside says
	})
}

// TestReleaseOfAListSparesNewerOwners: what was listed can have another owner by the time it is released.
func TestReleaseOfAListSparesNewerOwners(t *testing.T) {
	b := newBench(t)
	for name, content := range map[string]string{"10.1.2.2": "a\r\neth0", "10.1.2.3": "b\r\neth0", "10.1.2.4": "", "10.1.2.5": "", "10.1.2.6": "old"} {
		b.put(name, content)
	}
	list, err := Dir(b.dataDir).Held(t.Context(), "")
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	b.put("10.1.2.3", "new\r\neth0")
	b.put("10.1.2.5", "new\r\neth0")
	if err := Dir(b.dataDir).Release(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	b.hasFiles(map[string]string{"10.1.2.3": "new\r\neth0", "10.1.2.5": "new\r\neth0", "lock": ""})
}

// collect releases all that is held.
func (b *bench) collect() {
	b.Helper()
	list, err := Dir(b.dataDir).Held(b.Context(), "net")
	if err = errors.Join(err, Dir(b.dataDir).Release(b.Context(), list)); err != nil {
		b.Error(err)
	}
}

func TestHeldByChangesNothing(t *testing.T) {
	b := newBench(t)
	b.put("lock", "")
	b.put("10.1.2.2", "a\r\neth0")
	b.put("10.1.2.3", "")
	before := b.files()
	leases, err := b.HeldBy(t.Context(), att("a", "eth0"))
	if err != nil || texts(leases) != "10.1.2.2" {
		t.Errorf("got %s, %v", texts(leases), err)
	}
	b.hasFiles(before)
	if _, err := os.Stat(b.indexPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an index was made: %v", err)
	}
}

func TestNewStoreRefuses(t *testing.T) {
	for _, test := range []struct{ dir, network string }{
		{"relative", "net"}, {"", "net"}, {"/d", ""}, {"/d", ".cnibox"}, {"/d", "a/b"}, {"/d", "../etc"},
	} {
		if _, err := NewStore(test.dir, test.network, ""); err == nil {
			t.Errorf("%q, %q: no error", test.dir, test.network)
		}
	}
}

// TestRestore takes an address again whose file is lost or torn, and none that somebody has.
func TestRestore(t *testing.T) {
	b := newBench(t)
	b.add("a", small)
	before := b.files()
	restore := func(id string) error {
		return b.Restore(t.Context(), att(id, "eth0"), []netip.Addr{netip.MustParseAddr("10.1.2.2")})
	}
	for name, harm := range map[string]func(){
		"nothing": func() {},
		"lost":    func() { _ = os.Remove(filepath.Join(b.Path(), "10.1.2.2")) },
		"torn":    func() { b.put("10.1.2.2", "") },
	} {
		harm()
		if err := restore("a"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.hasFiles(before)
	}
	if err := restore("other"); err == nil || !strings.Contains(err.Error(), "10.1.2.2 of container other, interface eth0 has been given to container a") {
		t.Errorf("error %v", err)
	}
	b.hasFiles(before)
	if err := os.RemoveAll(b.Path()); err != nil {
		t.Fatal(err)
	}
	if err := restore("a"); err != nil {
		t.Error(err)
	}
	b.del("a", "eth0", "10.1.2.2")
}
