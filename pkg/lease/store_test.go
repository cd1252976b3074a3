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

func att(id, ifName string) plugin.Attachment {
	return plugin.Attachment{ContainerID: id, IfName: ifName}
}

// add allocates and returns the addresses as one text.
func (b *bench) add(id string, pools ...Pool) string {
	b.Helper()
	leases, err := b.Allocate(b.Context(), att(id, "eth0"), pools)
	if err != nil {
		b.Fatalf("ADD of %s: %v", id, err)
	}
	return texts(leases)
}

func (b *bench) addFails(id string, pools ...Pool) error {
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

func TestFilesAreThoseOfTheReference(t *testing.T) {
	b := newBench(t)
	if got := b.add("abc", small, pool(1, "fd00::2-fd00::9")); got != "10.1.2.2 fd00::2" {
		t.Errorf("got %s", got)
	}
	b.hasFiles(map[string]string{
		"10.1.2.2": "abc\r\neth0", "fd00::2": "abc\r\neth0",
		"last_reserved_ip.0": "10.1.2.2", "last_reserved_ip.1": "fd00::2", "lock": "",
	})
	for name, want := range map[string]os.FileMode{".": os.ModeDir | 0o755, "10.1.2.2": 0o600, "last_reserved_ip.0": 0o600, "lock": 0o750} {
		st, err := os.Stat(filepath.Join(b.Path(), name))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode()&^umask() != want&^umask() {
			t.Errorf("%s has mode %v, want %v", name, st.Mode(), want)
		}
	}
}

func umask() os.FileMode { return 0o022 }

func TestRoundRobin(t *testing.T) {
	b := newBench(t)
	for _, step := range []struct{ id, want string }{{"a", "10.1.2.2"}, {"b", "10.1.2.3"}} {
		if got := b.add(step.id, small); got != step.want {
			t.Errorf("%s got %s, want %s", step.id, got, step.want)
		}
		b.del(step.id, "eth0", step.want)
	}
	for _, step := range []struct{ id, want string }{{"c", "10.1.2.4"}, {"d", "10.1.2.2"}, {"e", "10.1.2.3"}} {
		if got := b.add(step.id, small); got != step.want {
			t.Errorf("%s got %s, want %s", step.id, got, step.want)
		}
	}
	// A shorter text leaves nothing of a longer one.
	b.put("last_reserved_ip.7", "10.1.2.100")
	b.del("c", "eth0", "10.1.2.4")
	b.add("f", Pool{Index: 7, Ranges: small.Ranges})
	if got := b.files()["last_reserved_ip.7"]; got != "10.1.2.4" {
		t.Errorf("last_reserved_ip.7 holds %q, want 10.1.2.4", got)
	}
}

func TestLastReservedIsOnlyAHint(t *testing.T) {
	for _, content := range []string{"", "nonsense", "10.1.2.99", "fd00::1", "10.1.2.3\n"} {
		b := newBench(t)
		b.put("last_reserved_ip.0", content)
		if got := b.add("a", small); got != "10.1.2.2" {
			t.Errorf("%q: got %s, want the first", content, got)
		}
	}
}

func TestFullPool(t *testing.T) {
	b := newBench(t)
	for _, id := range []string{"a", "b", "c"} {
		b.add(id, small)
	}
	err := b.addFails("d", small)
	if want := "no IP addresses available in range set: 10.1.2.1-10.1.2.4: 3 addresses, all taken; how many of them are stale is not known"; !strings.Contains(plugin.AsError(err).Msg, want) {
		t.Errorf("got %q, want %q", err, want)
	}
	b.del("b", "eth0", "10.1.2.3")
	if got := b.add("d", small); got != "10.1.2.3" {
		t.Errorf("got %s, want the one given back", got)
	}
}

func TestDensePool(t *testing.T) {
	b := newBench(t)
	wide := pool(0, "10.1.0.0-10.1.3.255")
	for i := range 1000 {
		b.put(fmt.Sprintf("10.1.%d.%d", i/256, i%256), fmt.Sprintf("id%d\r\neth0", i))
	}
	b.put("last_reserved_ip.0", "10.1.3.255")
	if got := b.add("new", wide); got != "10.1.3.232" {
		t.Errorf("got %s, want 10.1.3.232", got)
	}
	b.del("id500", "eth0", "10.1.1.244")
	b.put("last_reserved_ip.0", "10.1.3.255")
	if got := b.add("another", wide); got != "10.1.1.244" {
		t.Errorf("got %s, want the gap", got)
	}
}

func TestSecondAddIsRefused(t *testing.T) {
	other := pool(1, "10.9.0.1-10.9.0.9")
	for _, test := range []struct {
		name  string
		setup func(b *bench)
		pools []Pool
	}{
		{"any address", func(b *bench) { b.add("a", small) }, []Pool{small}},
		{"a wanted address", func(b *bench) { b.add("a", small) }, []Pool{{Ranges: small.Ranges, Want: addr("10.1.2.4")}}},
		{"its own address", func(b *bench) { b.add("a", small) }, []Pool{{Ranges: small.Ranges, Want: addr("10.1.2.2")}}},
		{"in the second pool", func(b *bench) { b.add("a", other) }, []Pool{small, other}},
		{"in the old form", func(b *bench) { b.put("10.1.2.3", "a") }, []Pool{small}},
		{"made by the reference", func(b *bench) { b.put("10.1.2.3", "a\r\neth0") }, []Pool{small}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			test.setup(b)
			before := b.files()
			err := b.addFails("a", test.pools...)
			if !strings.Contains(err.Error(), "has been allocated to container a") {
				t.Errorf("got %v, want that it holds one", err)
			}
			before["lock"] = ""
			b.hasFiles(before)
		})
	}
}

func TestOthersDoNotCount(t *testing.T) {
	b := newBench(t)
	b.add("a", small)
	if _, err := b.Allocate(t.Context(), att("a", "eth1"), []Pool{small}); err != nil {
		t.Errorf("a second interface: %v", err)
	}
	if got := b.add("a", pool(1, "10.9.0.1-10.9.0.9")); got != "10.9.0.1" {
		t.Errorf("an address of another pool: got %s", got)
	}
	b.del("a", "eth0", "10.1.2.2 10.9.0.1")
	b.del("a", "eth1", "10.1.2.3")
}

func TestWantedAddress(t *testing.T) {
	b := newBench(t)
	want := func(s string) Pool { return Pool{Ranges: small.Ranges, Want: addr(s)} }
	if got := b.add("a", want("10.1.2.3")); got != "10.1.2.3" {
		t.Errorf("got %s", got)
	}
	err := b.addFails("b", want("10.1.2.3"))
	if !strings.Contains(plugin.AsError(err).Msg, "it is held by container a, interface eth0, since 2") {
		t.Errorf("got %v, want that a has it", err)
	}
	b.put("10.1.2.2", "")
	if got := b.add("b", want("10.1.2.2")); got != "10.1.2.2" {
		t.Errorf("a torn one: got %s", got)
	}
	if err := os.Mkdir(filepath.Join(b.Path(), "10.1.2.4"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.addFails("c", want("10.1.2.4")); !strings.Contains(err.Error(), "not a lease") {
		t.Errorf("a directory: got %v", err)
	}
}

func TestAllOrNothing(t *testing.T) {
	b := newBench(t)
	one := pool(1, "fd00::2-fd00::2")
	b.add("a", one)
	before := b.files()
	b.addFails("b", small, one)
	after := b.files()
	delete(after, "last_reserved_ip.0")
	if !maps.Equal(before, after) {
		t.Errorf("a failed ADD left %q, before it was %q", after, before)
	}
	b.del("b", "eth0", "")
}

func TestNoLeaseWithoutLastReserved(t *testing.T) {
	b := newBench(t)
	if err := os.MkdirAll(filepath.Join(b.Path(), "last_reserved_ip.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.addFails("a", small); !strings.Contains(err.Error(), "last_reserved_ip.0") {
		t.Errorf("%v does not name the file", err)
	}
	if _, err := os.Stat(filepath.Join(b.Path(), "10.1.2.2")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the address was left behind: %v", err)
	}
}

func TestTornFilesAreFree(t *testing.T) {
	for _, content := range []string{"", "\n", "\x00\x00\x00\x00\x00\x00\x00\x00"} {
		b := newBench(t)
		for _, name := range []string{"10.1.2.2", "10.1.2.3", "10.1.2.4"} {
			b.put(name, content)
		}
		for _, id := range []string{"a", "b", "c"} {
			b.add(id, small)
		}
		// And with an index in use.
		b.del("b", "eth0", "10.1.2.3")
		b.put("10.1.2.3", content)
		if got := b.add("d", small); got != "10.1.2.3" {
			t.Errorf("%q: got %s, want the torn one", content, got)
		}
	}
}

func TestForeignFilesStay(t *testing.T) {
	b := newBench(t)
	outside := filepath.Join(b.dataDir, "outside")
	if err := os.WriteFile(outside, []byte("a\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.put("notes", "a\r\neth0")
	b.put("10.1.2.2", strings.Repeat("x", maxContent+1))
	if err := os.Symlink(outside, filepath.Join(b.Path(), "10.1.2.3")); err != nil {
		t.Fatal(err)
	}
	b.del("a", "eth0", "")
	if got := b.add("a", small); got != "10.1.2.4" {
		t.Errorf("got %s, want the address no file is named by", got)
	}
	b.collect()
	for _, path := range []string{outside, filepath.Join(b.Path(), "10.1.2.2"), filepath.Join(b.Path(), "10.1.2.3"), filepath.Join(b.Path(), "notes")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestSymlinkedLastReserved(t *testing.T) {
	b := newBench(t)
	outside := filepath.Join(b.dataDir, "outside")
	if err := os.WriteFile(outside, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.put("lock", "")
	if err := os.Symlink(outside, filepath.Join(b.Path(), "last_reserved_ip.0")); err != nil {
		t.Fatal(err)
	}
	b.addFails("a", small)
	if got, _ := os.ReadFile(outside); string(got) != "precious" {
		t.Errorf("a file outside was written: %q", got)
	}
}

func TestReleaseIsExact(t *testing.T) {
	b := newBench(t)
	b.put("10.1.2.2", "abc\r\neth0")
	b.put("10.1.2.3", "abcd\r\neth0")
	b.put("10.1.2.4", "abc\r\neth01")
	b.put("10.1.2.5", "abc")
	b.put("10.1.2.6", "xabc\r\neth0")
	b.del("abc", "eth0", "10.1.2.2") // in the new form: the old one stays
	b.del("abc", "eth0", "10.1.2.5") // now only the old one is left
	b.del("abc", "eth0", "")
	b.hasFiles(map[string]string{
		"10.1.2.3": "abcd\r\neth0", "10.1.2.4": "abc\r\neth01", "10.1.2.6": "xabc\r\neth0", "lock": "",
	})
}

func TestReleaseSparesANewerOwner(t *testing.T) {
	b := newBench(t)
	b.add("old", small)
	// The lease is removed and given to another behind our back.
	path := filepath.Join(b.Path(), "10.1.2.2")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	b.put("10.1.2.2", "new\r\neth0")
	b.del("old", "eth0", "")
	if got := b.files()["10.1.2.2"]; got != "new\r\neth0" {
		t.Errorf("the file holds %q", got)
	}
}

func TestNothingIsMadeForNothing(t *testing.T) {
	b := newBench(t)
	b.del("a", "eth0", "")
	b.collect()
	if _, err := b.HeldBy(t.Context(), att("a", "eth0")); err != nil {
		t.Error(err)
	}
	if _, held, err := b.OwnerOf(addr("10.1.2.2")); held || err != nil {
		t.Error(held, err)
	}
	if err := b.Writable(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(b.dataDir); len(entries) > 0 {
		t.Errorf("made %v", entries)
	}
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

func TestWritable(t *testing.T) {
	b := newBench(t)
	b.add("a", small)
	before := b.files()
	if err := b.Writable(); err != nil {
		t.Error(err)
	}
	b.hasFiles(before)

	file := filepath.Join(b.dataDir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(file, "net", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(); err == nil {
		t.Error("a file counts as a directory")
	}
}

func TestNewStoreRefuses(t *testing.T) {
	for _, test := range []struct{ dir, network string }{
		{"relative", "net"}, {"", "net"}, {"/d", ""}, {"/d", "."}, {"/d", ".."}, {"/d", ".cnibox"}, {"/d", "a/b"}, {"/d", "../etc"},
	} {
		if _, err := NewStore(test.dir, test.network, ""); err == nil {
			t.Errorf("%q, %q: no error", test.dir, test.network)
		}
	}
}
