package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
)

// later does something as a session that begins after a time.
func (b *bench) later(after time.Duration, do func(x *session) error) error {
	b.Helper()
	_, err := b.locked(b.Context(), true, "test", func(x *session) ([]Lease, error) {
		x.now = time.Now().Add(after)
		return nil, do(x)
	})
	return err
}

// result writes what libcni keeps of an attachment.
func (b *bench) result(id, netns string) {
	b.Helper()
	if b.results == "" {
		b.results = b.T.TempDir()
	}
	text := fmt.Sprintf(`{"kind":"cniCacheV1","networkName":"net","containerId":%q,"ifName":"eth0","netns":%q}`, id, netns)
	if err := os.WriteFile(filepath.Join(b.results, "net-"+id+"-eth0"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// The clock may be set while the machine runs: this boot began when it said so
// first.
func TestBootBegan(t *testing.T) {
	b := newBench(t)
	b.add("a", small)
	x := openIndex(b.indexPath, b.path)
	earlier := x.began.Add(-time.Hour).Truncate(time.Second)
	if err := overwrite(x.stamp(), x.describe(earlier, sealTimeOf(t, b.path))); err != nil {
		t.Fatal(err)
	}
	if x = openIndex(b.indexPath, b.path); !x.trusted || !x.began.Equal(earlier) {
		t.Errorf("trusted %v, began %v, want %v", x.trusted, x.began, earlier)
	}
	b.add("b", small) // writes the stamp anew
	later := x.began.Add(2 * time.Hour)
	if err := overwrite(x.stamp(), x.describe(later, sealTimeOf(t, b.path))); err != nil {
		t.Fatal(err)
	}
	if x = openIndex(b.indexPath, b.path); !x.trusted || !x.began.Before(later) {
		t.Errorf("trusted %v, began %v, want it before %v", x.trusted, x.began, later)
	}
}

func sealTimeOf(t *testing.T, path string) time.Time {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.ModTime()
}

// Some filesystems keep times in steps of a second, or two.
func TestSealTime(t *testing.T) {
	now := time.Now()
	for range 1000 {
		now = now.Add(time.Microsecond)
		seal := sealTime(now)
		if seal != seal.Truncate(2*time.Second) || seal.Year() < 1990 || seal.Year() > 2007 || seal.Equal(sealTime(now.Add(time.Microsecond))) {
			t.Fatalf("%v is marked by %v", now, seal)
		}
	}
	b := newBench(t)
	b.add("a", small)
	seal := sealTimeOf(t, b.path)
	if seal != seal.Truncate(2*time.Second) {
		t.Errorf("%v is not what every filesystem can keep", seal)
	}
}

// What an attachment of this boot had is somebody else's when it has been seen to be gone for minutes, and not when it came back meanwhile,
// when the result is older than the lease, or when it is not known.
func TestGoneForMinutes(t *testing.T) {
	b := newBench(t)
	netns := filepath.Join(t.TempDir(), "netns")
	full := pool(0, "10.1.2.1-10.1.2.6!10.1.2.1")
	for _, id := range []string{"gone", "moved", "unknown", "old", "runs"} {
		b.add(id, full)
	}
	b.result("gone", "/proc/0/ns/net")
	b.result("moved", netns)
	b.result("old", "/proc/0/ns/net")
	b.result("runs", "/proc/self/ns/net")
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(filepath.Join(b.results, "net-old-eth0"), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	refused := func(after time.Duration) {
		t.Helper()
		err := b.later(after, func(x *session) error { return x.reclaim(full) })
		if err == nil || len(b.leases()) != 5 {
			t.Fatalf("after %v: %v, %v", after, err, b.leases())
		}
	}
	refused(0)
	refused(4 * time.Minute)
	if err := os.Symlink("/proc/self/ns/net", netns); err != nil {
		t.Fatal(err)
	}
	b.result("gone", "/proc/self/ns/net")
	refused(6 * time.Minute)
	if err := os.Remove(netns); err != nil {
		t.Fatal(err)
	}
	b.result("gone", "/proc/0/ns/net")
	refused(6 * time.Minute)
	refused(4 * time.Minute)
	if err := b.later(6*time.Minute, func(x *session) error { return x.reclaim(full) }); err != nil {
		t.Fatal(err)
	}
	left := texts(b.leases())
	if left != "10.1.2.4 10.1.2.5 10.1.2.6" {
		t.Errorf("left: %s", left)
	}
}

// An address that is asked for by name is taken over in the same way.
func TestWantedOfOneGoneForMinutes(t *testing.T) {
	b := newBench(t)
	wanted := ranges.Pool{Ranges: small.Ranges, Want: addr("10.1.2.2")}
	b.add("gone", small)
	b.result("gone", "/proc/0/ns/net")
	take := func(x *session) error { return x.allocateWanted(att("new", "eth0"), wanted) }
	for _, after := range []time.Duration{0, 4 * time.Minute} {
		if err := b.later(after, take); err == nil {
			t.Fatalf("taken after %v", after)
		}
	}
	if err := b.later(6*time.Minute, take); err != nil {
		t.Fatal(err)
	}
}
