package lease

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// worker makes the test binary a process that adds and deletes attachments in
// that data directory, under ids that start with its second argument.
const worker = "LEASE_TEST_WORKER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(worker); dir != "" {
		work(dir, os.Args[1])
	}
	os.Exit(m.Run())
}

// both is a pool of each family, wide enough for all workers.
func both() []ranges.Pool {
	return []ranges.Pool{pool(0, "10.1.0.1-10.1.0.250!10.1.0.1"), pool(1, "fd00::1-fd00::ffff!fd00::1")}
}

func work(dir, name string) {
	s, err := NewStore(dir, "net", "")
	for i := 0; err == nil; i++ {
		id := fmt.Sprint(name, "-", i%20)
		var leases []Lease
		if i%40 < 20 {
			leases, err = s.Allocate(context.Background(), att(id, "eth0"), both())
			fmt.Println("has", id, texts(leases))
		} else {
			fmt.Println("del", id)
			_, err = s.Release(context.Background(), att(id, "eth0"))
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

func startWorker(t *testing.T, dir, name string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0], name)
	cmd.Env = append(os.Environ(), worker+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// Processes that go on until they are killed, and goroutines of this one, at once: nobody holds two addresses of a family, and what the
// goroutines were given is theirs to the end.
func TestProcessesAndGoroutines(t *testing.T) {
	b := newBench(t)
	const calls = 60 // of each worker; at 60 each has 20 attachments
	var mu sync.Mutex
	has := map[string]string{} // of the goroutines
	var wg sync.WaitGroup
	for p := range 4 {
		cmd, lines := startWorker(t, b.dataDir, fmt.Sprint("p", p))
		wg.Go(func() {
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			for range calls {
				if !lines.Scan() {
					t.Error("a worker ended")
					return
				}
				if strings.HasPrefix(lines.Text(), "error") {
					t.Error(lines.Text())
				}
			}
		})
	}
	for g := range 4 {
		wg.Go(func() {
			for i := range 20 {
				id := fmt.Sprint("g", g, "-", i)
				leases, err := b.Allocate(context.Background(), att(id, "eth0"), both())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				has[id] = texts(leases)
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	onDisk := noDuplicates(t, b)
	for id, addresses := range has {
		if onDisk[id] != addresses {
			t.Errorf("%s was given %s and holds %q", id, addresses, onDisk[id])
		}
	}
	deleteAll(t, b)
}

// Each kill may leave an attachment half made; its DEL leaves nothing of it, and every address can be had again.
func TestKilledWorkers(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for kill := range 40 {
		cmd, lines := startWorker(t, b.dataDir, fmt.Sprint("k", kill%4))
		_ = lines.Scan() // it is at work
		netlab.Pause(time.Duration(rng.IntN(4000)) * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for i := range 20 { // ids of this worker are used again by a later one
			if _, err := b.Release(t.Context(), att(fmt.Sprint("k", kill%4, "-", i), "eth0")); err != nil {
				t.Fatal(err)
			}
		}
	}
	deleteAll(t, b)
	for i := range 249 {
		b.add(fmt.Sprint("after", i), both()...)
	}
	if err := b.addFails("one more", both()...); !strings.Contains(err.Error(), "no IP addresses available") {
		t.Errorf("got %v, want a full pool", err)
	}
}

// noDuplicates returns who holds what, and fails if anything else is in the directory.
func noDuplicates(t *testing.T, b *bench) map[string]string {
	t.Helper()
	leases := b.leases()
	byOwner := map[plugin.Key][]Lease{}
	for _, l := range leases {
		byOwner[l.Owner] = append(byOwner[l.Owner], l)
	}
	held := map[string]string{}
	for owner, own := range byOwner {
		if len(own) > 2 || len(own) == 2 && own[0].Address.Is4() == own[1].Address.Is4() {
			t.Errorf("%s holds %s", Name(owner), texts(own))
		}
		held[owner.ContainerID] = texts(own)
	}
	return held
}

// deleteAll calls DEL for all that hold something, and looks that the lock and the hints are what is left.
func deleteAll(t *testing.T, b *bench) {
	t.Helper()
	leases := b.leases()
	for _, l := range leases {
		if _, err := b.Release(t.Context(), l.Owner); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{b.Path(), filepath.Dir(b.indexPath)} {
		entries, err := os.ReadDir(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			switch e.Name() {
			case "lock", "last_reserved_ip.0", "last_reserved_ip.1", "net":
			default:
				t.Errorf("%s was left in %s", e.Name(), name)
			}
		}
	}
}
