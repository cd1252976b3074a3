package firewalld

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

var keyOf, prefixes, addresses = netfiltertest.KeyOf, netfiltertest.Prefixes, netfiltertest.Addrs

// gc collects in the calling thread's namespace.
func gc(network string, valid ...plugin.Key) error {
	return held.GC(ctx, netfiltertest.GC(network, valid...), Sources{})
}

// lab is a host with firewalld.
type lab struct {
	*netlab.Host
	daemon *firewalldtest.Daemon
}

func newLab(t *testing.T) lab {
	h := netlab.NewHost(t)
	return lab{h, firewalldtest.Start(t, h, "nftables")}
}

// in runs f in the host and returns its error.
func (l lab) in(f func() error) (err error) {
	l.Do(func() { err = f() })
	return err
}

func (l lab) must(t *testing.T, f func() error) {
	t.Helper()
	if err := l.in(f); err != nil {
		t.Fatal(err)
	}
}

func (l lab) add(t *testing.T, zone, id string, addrs ...string) {
	t.Helper()
	l.must(t, func() error { return Zone(zone).Add(ctx, keyOf(id), addresses(addrs...)) })
}

func (l lab) del(t *testing.T, zone, id string, hint ...string) {
	t.Helper()
	l.must(t, func() error { return Zone(zone).Del(ctx, keyOf(id), prefixes(hint...)) })
}

func (l lab) check(zone, id string, addrs ...string) error {
	return l.in(func() error { return Zone(zone).Check(ctx, keyOf(id), addresses(addrs...)) })
}

func (l lab) wantSources(t *testing.T, zone string, want ...string) {
	t.Helper()
	got := l.daemon.Sources(t, zone)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("zone %s has %v, want %v", zone, got, want)
	}
}

// wantRecorded says how many attachments are in the record.
func (l lab) wantRecorded(t *testing.T, n int) {
	t.Helper()
	l.Do(func() {
		list, err := readRecord()
		keys := map[plugin.Key]bool{}
		for _, h := range list {
			keys[h.key] = true
		}
		if err != nil || len(keys) != n {
			t.Errorf("%v is recorded, error %v; want %d attachments", list, err, n)
		}
		if _, err := os.Stat(state.RunFile(recordFile)); n == 0 && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record is there: %v", err)
		}
	})
}

func TestLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "web", "10.88.0.2", "fd00::2")
	l.wantSources(t, "trusted", "10.88.0.2/32", "fd00::2/128")
	if err := l.check("trusted", "web", "10.88.0.2", "fd00::2"); err != nil {
		t.Error(err)
	}

	// Again, with other addresses and in another zone.
	l.add(t, "trusted", "web", "10.88.0.2", "10.88.0.3")
	l.wantSources(t, "trusted", "10.88.0.2/32", "10.88.0.3/32")
	l.add(t, "internal", "web", "10.88.0.3")
	l.wantSources(t, "trusted")
	l.wantSources(t, "internal", "10.88.0.3/32")
	l.wantRecorded(t, 1)

	l.add(t, "trusted", "other", "10.88.0.4")
	for range 2 {
		l.del(t, "public", "web") // whatever the configuration says by now
		l.wantSources(t, "internal")
	}
	l.wantSources(t, "trusted", "10.88.0.4/32")
	l.del(t, "trusted", "other", "10.88.0.4/24")
	l.wantSources(t, "trusted")
	l.wantRecorded(t, 0)
}

// An address passes to the attachment that gets it later, and the one that had
// it before does not take it away.
func TestLateDel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "old", "10.88.0.2", "10.88.0.9")
	l.add(t, "trusted", "new", "10.88.0.2")
	if err := l.check("trusted", "old", "10.88.0.2"); err == nil || !strings.Contains(err.Error(), "belongs to net/new/eth0") {
		t.Errorf("CHECK of the old attachment: %v", err)
	}
	l.del(t, "trusted", "old", "10.88.0.2/16", "10.88.0.9/16")
	l.wantSources(t, "trusted", "10.88.0.2/32")
	l.del(t, "trusted", "old", "10.88.0.2/16", "10.88.0.9/16") // now without a record
	l.wantSources(t, "trusted", "10.88.0.2/32")
	l.add(t, "internal", "newer", "10.88.0.2") // the network's zone was changed
	l.wantSources(t, "trusted")
	l.wantSources(t, "internal", "10.88.0.2/32")
	l.del(t, "trusted", "new")
	l.wantSources(t, "internal", "10.88.0.2/32")
	l.del(t, "internal", "newer")
	l.wantSources(t, "internal")
	l.wantRecorded(t, 0)
}

// What the reference plugins added has no record.
func TestForeignSources(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.daemon.AddSource(t, "trusted", "10.88.0.2/32")
	l.daemon.AddSource(t, "trusted", "fd00::2/128")
	l.daemon.AddSource(t, "internal", "10.88.0.3/32")
	if err := l.check("trusted", "web", "10.88.0.2", "fd00::2"); err != nil {
		t.Error(err)
	}
	l.del(t, "trusted", "web")
	l.wantSources(t, "trusted", "10.88.0.2/32", "fd00::2/128")
	l.del(t, "trusted", "web", "10.88.0.2/24", "fd00::2/64", "10.88.0.3/24", "10.88.0.4/24")
	l.wantSources(t, "trusted")
	l.wantSources(t, "internal", "10.88.0.3/32")
	l.wantRecorded(t, 0)
}

func TestGC(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "valid", "10.88.0.2")
	l.add(t, "trusted", "stale", "10.88.0.3", "fd00::3")
	l.add(t, "trusted", "passed", "10.88.0.2") // the address is the other one's again
	l.add(t, "trusted", "valid", "10.88.0.2")
	elsewhere := plugin.Key{Network: "net2", ContainerID: "stale", IfName: "eth0"}
	l.must(t, func() error { return Zone("trusted").Add(ctx, elsewhere, addresses("10.89.0.2")) })
	l.must(t, func() error {
		return gc("net", keyOf("valid"), keyOf("unknown"))
	})
	l.wantSources(t, "trusted", "10.88.0.2/32", "10.89.0.2/32")
	l.wantRecorded(t, 2)
	l.must(t, func() error { return gc("net") })
	l.wantSources(t, "trusted", "10.89.0.2/32")
	l.must(t, func() error { return gc("net2") })
	l.wantSources(t, "trusted")
	l.wantRecorded(t, 0)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.daemon.AddSource(t, "internal", "10.88.0.3/32")
	tests := []struct {
		name, zone string
		addrs      []string
		code       uint
		texts      []string
	}{
		{"no such zone", "nowhere", []string{"10.88.0.2"}, types.ErrInvalidNetworkConfig, []string{`no zone "nowhere"`, "--get-zones"}},
		{"no name", "", []string{"10.88.0.2"}, types.ErrInvalidNetworkConfig, []string{`"" is not the name of a zone`}},
		{"no name that can be", "a\nb", []string{"10.88.0.2"}, types.ErrInvalidNetworkConfig, []string{`"a\nb" is not the name of a zone`}},
		{"an administrator's source", "trusted", []string{"10.88.0.2", "10.88.0.3"}, types.ErrInvalidNetworkConfig,
			[]string{"add 10.88.0.3/32 to firewalld's zone trusted: it is a source of zone internal", "--zone=internal --remove-source=10.88.0.3/32"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := l.in(func() error { return Zone(tt.zone).Add(ctx, keyOf("web"), addresses(tt.addrs...)) })
			wantError(t, err, tt.code, tt.texts...)
		})
	}
	l.wantSources(t, "trusted") // what had been added is taken back
	l.wantSources(t, "internal", "10.88.0.3/32")
	l.wantRecorded(t, 0)
}

func wantError(t *testing.T, err error, code uint, texts ...string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want one of code %d", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

// A reload makes firewalld forget the sources, and CHECK tells.
func TestReload(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "web", "10.88.0.2")
	l.daemon.Reload(t)
	wantError(t, l.check("trusted", "web", "10.88.0.2"), types.ErrInternal,
		"10.88.0.2/32 is not a source of firewalld's zone trusted: it is in no zone", "firewall-cmd --zone=trusted --change-source=10.88.0.2/32")
	l.daemon.AddSource(t, "internal", "10.88.0.2/32")
	wantError(t, l.check("trusted", "web", "10.88.0.2"), types.ErrInternal, "it is in zone internal")
	wantError(t, l.check("nowhere", "web", "10.88.0.2"), types.ErrInternal, "it is in zone internal")
	l.del(t, "trusted", "web")
	l.wantSources(t, "internal", "10.88.0.2/32") // somebody else's decision
	l.wantRecorded(t, 0)
}

// TestRepair adds sources again that a reload has taken, but none that is another attachment's by now, or that somebody has put elsewhere.
func TestRepair(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "web", "10.88.0.2")
	l.add(t, "trusted", "db", "10.88.0.3")
	l.daemon.Reload(t)
	repair := func(id, address string) error {
		return l.in(func() error { return Zone("trusted").Repair(ctx, keyOf(id), addresses(address)) })
	}
	if err := repair("web", "10.88.0.2"); err != nil {
		t.Error(err)
	}
	l.wantSources(t, "trusted", "10.88.0.2/32")
	wantError(t, repair("web", "10.88.0.3"), types.ErrInternal, "belongs to net/db/eth0")
	l.wantSources(t, "trusted", "10.88.0.2/32")
	l.daemon.AddSource(t, "internal", "10.88.0.3/32")
	wantError(t, repair("db", "10.88.0.3"), types.ErrInvalidNetworkConfig, "it is a source of zone internal")
	l.wantRecorded(t, 2)
}

// Without firewalld there are no sources to remove, and none can be added.
func TestNotRunning(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "web", "10.88.0.2")
	running := func() (is bool) {
		l.must(t, func() (err error) {
			is, err = Running(ctx)
			return err
		})
		return is
	}
	if !running() {
		t.Error("firewalld is not found")
	}
	l.daemon.Stop(t)
	if running() {
		t.Error("firewalld is found, and has gone")
	}
	withoutFirewalld(t, l)
}

func TestNoBus(t *testing.T) {
	t.Parallel()
	l := lab{Host: netlab.NewHost(t)}
	l.Do(func() {
		if is, err := Running(ctx); is || err != nil {
			t.Errorf("Running: %v, %v", is, err)
		}
	})
	withoutFirewalld(t, l)
}

func withoutFirewalld(t *testing.T, l lab) {
	t.Helper()
	wantError(t, l.check("trusted", "web", "10.88.0.2"), types.ErrTryAgainLater, "firewalld is not running", "systemctl start firewalld")
	err := l.in(func() error { return Zone("trusted").Add(ctx, keyOf("new"), addresses("10.88.0.3")) })
	wantError(t, err, types.ErrTryAgainLater, "firewalld is not running")
	l.del(t, "trusted", "web")
	l.del(t, "trusted", "none", "10.88.0.9/24")
	l.must(t, func() error { return gc("net") })
	l.wantRecorded(t, 0)
}

// An ADD that was killed has written down what it may have done, and may not
// have done it.
func TestInterruptedAdd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(t, func() error {
		return state.Locked(ctx, lockFile, func() error {
			return writeRecord([]holding{
				{netip.MustParseAddr("10.88.0.2"), "trusted", keyOf("web")},
				{netip.MustParseAddr("10.88.0.3"), "trusted", keyOf("web")},
			})
		})
	})
	l.daemon.AddSource(t, "trusted", "10.88.0.2/32")
	l.del(t, "trusted", "web")
	l.wantSources(t, "trusted")
	l.wantRecorded(t, 0)
}

func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const n = 32
	all := func(f func(z Zone, key plugin.Key, addr string) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				err := l.in(func() error { return f(Zone("trusted"), keyOf(fmt.Sprint("c", i)), fmt.Sprintf("10.88.0.%d", i)) })
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	all(func(z Zone, key plugin.Key, addr string) error { return z.Add(ctx, key, addresses(addr)) })
	if got := l.daemon.Sources(t, "trusted"); len(got) != n {
		t.Errorf("%d sources, want %d", len(got), n)
	}
	all(func(z Zone, key plugin.Key, _ string) error { return z.Del(ctx, key, nil) })
	l.wantSources(t, "trusted")
	l.wantRecorded(t, 0)
}

// TestRecord leaves out what makes no sense, as another version may have written.
func TestRecord(t *testing.T) {
	t.Parallel()
	long := plugin.Key{Network: "net", ContainerID: strings.Repeat("c0ffee", 40), IfName: "eth0"}
	want := []holding{
		{netip.MustParseAddr("10.88.0.2"), "trusted", keyOf("web")},
		{netip.MustParseAddr("fd00::2"), "internal", long},
	}
	netlab.NewHost(t).Do(func() {
		if err := os.MkdirAll(state.RunFile("firewalld"), 0o755); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := writeRecord(want); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(state.RunFile(recordFile))
			if err != nil || !strings.HasPrefix(string(text), `{"network":"net","containerID":"web","ifname":"eth0","address":"10.88.0.2","zone":"trusted"}`) {
				t.Errorf("%q is written, error %v", text, err)
			}
			other := `{"network":"net","containerID":"web","ifname":"eth0","address":"10.88.0","zone":"trusted"}` + "\n\n10.88.0.9 trusted\n"
			if err := os.WriteFile(state.RunFile(recordFile), []byte(other+string(text)), 0o600); err != nil {
				t.Error(err)
			}
			if got, err := readRecord(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v is read, error %v; want %v", got, err, want)
			}
		}
	})
}
