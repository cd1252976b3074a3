package firewalld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/test/firewalldtest"
	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

var keyOf, prefixes, addresses = netfiltertest.KeyOf, netfiltertest.Prefixes, netfiltertest.Addrs

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

// record writes down what attachments may have, as ADD does before it asks firewalld.
func (l lab) record(t *testing.T, list ...holding) {
	t.Helper()
	l.must(t, func() error { return state.Locked(ctx, lockFile, func() error { return writeRecord(list) }) })
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

// Another ADD takes the place of the first one's, and DEL takes all of it back, whatever the configuration says by then.
func TestLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.add(t, "trusted", "web", "10.88.0.2", "fd00::2")
	l.add(t, "trusted", "web", "10.88.0.2", "10.88.0.3")
	l.wantSources(t, "trusted", "10.88.0.2/32", "10.88.0.3/32")
	l.add(t, "internal", "web", "10.88.0.3")
	l.wantSources(t, "trusted")
	l.wantSources(t, "internal", "10.88.0.3/32")
	l.wantRecorded(t, 1)
	l.del(t, "public", "web")
	l.wantSources(t, "internal")
	l.wantRecorded(t, 0)

	// An ADD that was killed has written down what it may have done, and may not have done it.
	l.record(t, holding{web, "trusted", keyOf("web")}, holding{web.Next(), "trusted", keyOf("web")})
	l.daemon.AddSource(t, "trusted", "10.88.0.2/32")
	l.del(t, "trusted", "web")
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

// What the reference plugins added has no record. What somebody else has put into another zone stays there.
func TestForeignSources(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.daemon.AddSource(t, "trusted", "10.88.0.2/32")
	l.daemon.AddSource(t, "trusted", "fd00::2/128")
	l.daemon.AddSource(t, "internal", "10.88.0.3/32")
	if err := l.check("trusted", "web", "10.88.0.2", "fd00::2"); err != nil {
		t.Error(err)
	}
	wantError(t, l.check("trusted", "web", "10.88.0.3"), types.ErrInternal, "it is in zone internal")
	wantError(t, l.check("nowhere", "web", "10.88.0.3"), types.ErrInternal, "it is in zone internal")
	l.del(t, "trusted", "web")
	l.wantSources(t, "trusted", "10.88.0.2/32", "fd00::2/128")
	l.record(t, holding{web.Next(), "trusted", keyOf("web")})
	l.del(t, "trusted", "web", "10.88.0.2/24", "fd00::2/64", "10.88.0.3/24", "10.88.0.4/24")
	l.wantSources(t, "trusted")
	l.wantSources(t, "internal", "10.88.0.3/32")
	l.wantRecorded(t, 0)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.daemon.AddSource(t, "internal", "10.88.0.3/32")
	for zone, texts := range map[string][]string{
		"nowhere": {`no zone "nowhere"`, "--get-zones"},
		"":        {`"" is not the name of a zone`},
		"a\nb":    {`"a\nb" is not the name of a zone`},
		"trusted": {"add 10.88.0.3/32 to firewalld's zone trusted: it is a source of zone internal", "--zone=internal --remove-source=10.88.0.3/32"},
	} {
		err := l.in(func() error { return Zone(zone).Add(ctx, keyOf("web"), addresses("10.88.0.2", "10.88.0.3")) })
		wantError(t, err, types.ErrInvalidNetworkConfig, texts...)
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
	l.daemon.Stop(t)
	wantError(t, l.check("trusted", "web", "10.88.0.2"), types.ErrTryAgainLater, "firewalld is not running", "systemctl start firewalld")
	err := l.in(func() error { return Zone("trusted").Add(ctx, keyOf("new"), addresses("10.88.0.3")) })
	wantError(t, err, types.ErrTryAgainLater, "firewalld is not running")
	l.del(t, "trusted", "web")
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

// What makes no sense in the record, as another version may have written, is left out.
func TestRecord(t *testing.T) {
	t.Parallel()
	const own = `{"network":"net","containerID":"web","ifname":"eth0","address":"10.88.0.2","zone":"trusted"}` + "\n"
	l := lab{Host: netlab.NewHost(t)}
	l.record(t, holding{web, "trusted", keyOf("web")})
	l.Do(func() {
		if text, err := os.ReadFile(state.RunFile(recordFile)); err != nil || string(text) != own {
			t.Errorf("%q is written, error %v", text, err)
		}
		other := strings.Replace(own, "10.88.0.2", "10.88.0", 1) + "\n10.88.0.9 trusted\n"
		if err := os.WriteFile(state.RunFile(recordFile), []byte(other+own), 0o600); err != nil {
			t.Error(err)
		}
		if got, err := readRecord(); err != nil || !slices.Equal(got, []holding{{web, "trusted", keyOf("web")}}) {
			t.Errorf("%v is read, error %v", got, err)
		}
	})
}
