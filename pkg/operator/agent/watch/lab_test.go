package watch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// watcherVariable in the environment has the test program watch the node that it is on: a watch belongs to its process's namespaces.
const watcherVariable = "CNIBOX_TEST_WATCH"

func TestMain(m *testing.M) {
	if os.Getenv(watcherVariable) != "" {
		if err := watchAndPrint(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	netlab.Main(m)
}

// watchAndPrint prints what the watch returns, each burst in a line, until a signal ends it.
func watchAndPrint() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	watch.TryAgainAfter(200*time.Millisecond, 90)
	var table plugin.Table
	for _, name := range []string{"bridge", "ptp", "macvlan", "host-local", "portmap", "firewall", "bandwidth", "tuning", "sbr", "vrf", "chain", "loopback"} {
		table = append(table, plugin.Descriptor{Name: name})
	}
	w, err := watch.Start(ctx, watch.Options{Plugins: table})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode([]watch.Hit{})
	for {
		hits, err := w.Burst(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		_ = out.Encode(hits)
	}
}

// watcher is a process that watches a host.
type watcher struct {
	t     testing.TB
	stop  func() (cpu time.Duration)
	begun chan struct{}

	mu      sync.Mutex
	hits    []watch.Hit
	settled int
}

// watchHost begins to watch a host, until the test ends.
func watchHost(t testing.TB, h *netlab.Host) *watcher {
	t.Helper()
	w := &watcher{t: t, begun: make(chan struct{})}
	cmd := h.Command("/proc/self/exe")
	cmd.Path = self(t)
	cmd.Env = append(os.Environ(), watcherVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.read(bufio.NewScanner(out))
	}()
	w.stop = sync.OnceValue(func() time.Duration {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if err := cmd.Wait(); err != nil {
			t.Errorf("the watch failed: %v", err)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	})
	t.Cleanup(func() { w.stop() })
	select {
	case <-w.begun:
	case <-time.After(netlab.Patience):
		t.Fatal("the watch does not begin")
	}
	return w
}

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (w *watcher) read(lines *bufio.Scanner) {
	lines.Buffer(nil, 1<<20)
	for n := 0; lines.Scan(); n++ {
		var hits []watch.Hit
		if err := json.Unmarshal(lines.Bytes(), &hits); err != nil {
			w.t.Errorf("%v: %s", err, lines.Bytes())
		}
		if n == 0 {
			close(w.begun)
		}
		w.mu.Lock()
		w.hits = append(w.hits, hits...)
		w.mu.Unlock()
	}
}

func (w *watcher) all() []watch.Hit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.hits)
}

// await waits for a hit of a kind with this text.
func (w *watcher) await(kind watch.Kind, what string) watch.Hit {
	w.t.Helper()
	isMeant := func(h watch.Hit) bool { return h.Kind == kind && strings.Contains(h.What, what) }
	var hits []watch.Hit
	netlab.Eventually(w.t, func() error {
		if hits = w.all(); slices.ContainsFunc(hits, isMeant) {
			return nil
		}
		return fmt.Errorf("no hit says %q:\n%s", what, describeAll(hits))
	})
	return hits[slices.IndexFunc(hits, isMeant)]
}

// settle waits until all that has happened so far has been told, by a link that is made and deleted for that.
func (w *watcher) settle(h *netlab.Host) {
	w.t.Helper()
	w.settled++
	name := fmt.Sprintf("settled%d", w.settled)
	h.MustRun(w.t, "ip", "link", "add", name, "type", "bridge")
	h.MustRun(w.t, "ip", "link", "del", name)
	w.await(watch.Link, "bridge "+name+" was deleted")
}

// others returns the hits but those of settle.
func (w *watcher) others() []watch.Hit {
	return slices.DeleteFunc(w.all(), func(h watch.Hit) bool { return strings.HasPrefix(h.Link, "settled") })
}

func describeAll(hits []watch.Hit) string {
	var lines []string
	for _, h := range hits {
		lines = append(lines, fmt.Sprintf("%+v", h))
	}
	return strings.Join(lines, "\n")
}
