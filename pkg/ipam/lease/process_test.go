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
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/test/netlab"
)

// worker makes the test binary a process that adds and deletes attachments in that data directory, under ids that start with its argument.
const worker = "LEASE_TEST_WORKER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(worker); dir != "" {
		work(dir, os.Args[1])
	}
	os.Exit(m.Run())
}

// both is a pool of each family.
func both() []ranges.Pool {
	return []ranges.Pool{pool(0, "10.1.0.1-10.1.0.250!10.1.0.1"), pool(1, "fd00::1-fd00::ffff!fd00::1")}
}

func work(dir, name string) {
	s, err := NewStore(dir, "net", "")
	for i := 0; err == nil; i++ {
		id := fmt.Sprint(name, "-", i%20)
		fmt.Println("calls")
		if i%40 < 20 {
			_, err = s.Allocate(context.Background(), att(id, "eth0"), both())
		} else {
			_, err = s.Release(context.Background(), att(id, "eth0"))
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

// Each kill may leave an attachment half made; its DEL leaves nothing of it, and every address can be had again.
func TestKilledWorkers(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for kill := range 40 {
		name := fmt.Sprint("k", kill%4)
		cmd := exec.Command(os.Args[0], name)
		cmd.Env = append(os.Environ(), worker+"="+b.dataDir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = bufio.NewScanner(out).Scan() // it is at work
		netlab.Pause(time.Duration(rng.IntN(4000)) * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for i := range 20 { // ids of this worker are used again by a later one
			if _, err := b.Release(t.Context(), att(fmt.Sprint(name, "-", i), "eth0")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, dir := range []string{b.Path(), filepath.Dir(b.indexPath)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "last_reserved_ip.") && e.Name() != "lock" && e.Name() != "net" {
				t.Errorf("%s was left in %s", e.Name(), dir)
			}
		}
	}
	for i := range 249 {
		b.add(fmt.Sprint("after", i), both()...)
	}
	if err := b.addFails("one more", both()...); !strings.Contains(err.Error(), "no IP addresses available") {
		t.Errorf("got %v, want a full pool", err)
	}
}
