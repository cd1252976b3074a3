package repair

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestOpen: a namespace that is made anew at the path is not the attachment's.
func TestOpen(t *testing.T) {
	host := netlab.NewHost(t)
	pod := host.NewPod(t, "a")
	host.Do(func() {
		file, err := os.Stat(pod.Path())
		if err != nil {
			t.Error(err)
			return
		}
		inode := file.Sys().(*syscall.Stat_t).Ino
		for is, want := range map[uint64]error{inode: nil, inode + 1: errEnded} {
			a := &attempt{Attachment: &node.Attachment{Namespace: &node.Namespace{Inode: is, Paths: []string{pod.Path()}}}}
			pair, err := a.open()
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if err == nil {
				pair.Close()
			}
		}
	})
}

// TestKeep: nothing is put back of an attachment whose result was removed or written anew since the look: it was deleted, or made again.
func TestKeep(t *testing.T) {
	netlab.NewHost(t).Do(func() {
		for name, meanwhile := range map[string]func(path string) error{
			"removed":       os.Remove,
			"written anew":  func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)) },
			"as it was":     func(string) error { return nil },
			"only accessed": func(path string) error { return os.Chtimes(path, time.Now().Add(time.Hour), time.Time{}) },
		} {
			path := filepath.Join(t.TempDir(), "result")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			a := &attempt{Attachment: &node.Attachment{Result: &node.Result{Path: path, Written: file.ModTime()}}}
			if err := meanwhile(path); err != nil {
				t.Fatal(err)
			}
			isThere := name == "as it was" || name == "only accessed"
			lock, err := a.lock(t.Context())
			if (err == nil) != isThere || err != nil && !errors.Is(err, errDeleted) {
				t.Errorf("%s: %v", name, err)
			}
			lock.Release()
		}
	})
}
