package contiv

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// ownFiles has the test find /var/lib and /run empty.
func ownFiles(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/var/lib", "/run"} {
		must(t, unix.Mount("none", dir, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRecord(id string) Record {
	return Record{Key: plugin.Key{Network: "pods", ContainerID: id, IfName: "eth0"}, Pod: "web", Namespace: "shop", Socket: "/run/s", Since: time.Now()}
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRecords(t *testing.T) {
	ownFiles(t)
	if list, err := Records(); err != nil || list != nil {
		t.Errorf("without a directory: %v, %v", list, err)
	}
	if list, err := Deletions(); err != nil || list != nil {
		t.Errorf("without a directory: %v, %v", list, err)
	}
	r := newRecord("c1")
	must(t, RemoveDeletion(r.Key))
	must(t, Remove(r.Key))
	must(t, r.Write())
	must(t, newRecord("c2").Write())
	got := Read(r.Key)
	if got == nil || got.Key != r.Key || got.Pod != "web" || got.Namespace != "shop" || got.Socket != "/run/s" || !got.Since.Equal(r.Since) || !got.Tried.IsZero() {
		t.Errorf("read back: %+v, want %+v", got, r)
	}
	if want := (Request{Pod: "web", Namespace: "shop", ContainerID: "c1", IfName: "eth0"}); got.Request() != want || got.PodName() != "shop/web" {
		t.Errorf("%+v, %s", got.Request(), got.PodName())
	}
	if list, err := Records(); err != nil || len(list) != 2 || list[0].Path() == "" {
		t.Errorf("%v, %v", list, err)
	}
	must(t, Remove(r.Key))
	if Read(r.Key) != nil || Read(newRecord("c2").Key) == nil {
		t.Error("the wrong one was removed")
	}
}

func TestDeletions(t *testing.T) {
	ownFiles(t)
	r := newRecord("c1")
	must(t, r.Write())
	d := r
	d.Since, d.Tried = r.Since.Add(time.Second), r.Since.Add(time.Minute)
	must(t, d.Queue())
	must(t, Remove(r.Key))
	got := ReadDeletion(r.Key)
	if got == nil || !got.Tried.Equal(d.Tried) || got.IsSuperseded() {
		t.Fatalf("read back: %+v", got)
	}
	if list, err := Records(); err != nil || len(list) != 0 {
		t.Errorf("a deletion is taken for an attachment: %v, %v", list, err)
	}
	r.Since = d.Since.Add(time.Second)
	must(t, r.Write())
	if !got.IsSuperseded() {
		t.Error("a deletion from before the attachment counts")
	}
	if list, err := Deletions(); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	must(t, RemoveDeletion(r.Key))
	if Read(r.Key) == nil || ReadDeletion(r.Key) != nil || isThere(queueDir) {
		t.Error("the attachment is gone, or the deletion or its directory are still there")
	}
}

// What is no record, or that of another attachment, is listed without a key.
func TestTornRecords(t *testing.T) {
	ownFiles(t)
	r := newRecord("c1")
	must(t, r.Write())
	path := pathIn(Dir, r.Key)
	text, err := os.ReadFile(path)
	must(t, err)
	for name, content := range map[string]string{
		filepath.Base(path): "", "copy.json": string(text), "no.json": "x", "other": "y", ".tmp.json": string(text),
	} {
		must(t, os.WriteFile(filepath.Join(Dir, name), []byte(content), 0o600))
	}
	if got := Read(r.Key); got != nil {
		t.Errorf("an empty file was read as %+v", got)
	}
	list, err := Records()
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, one := range list {
		if one.Key != (plugin.Key{}) || !strings.HasPrefix(one.Path(), Dir) {
			t.Errorf("%+v", one)
		}
	}
}

func TestLockDeletions(t *testing.T) {
	ownFiles(t)
	first, err := LockDeletions(t.Context(), 0)
	must(t, err)
	if second, err := LockDeletions(t.Context(), 0); err == nil {
		second.Release()
		t.Error("two have the lock")
	}
	first.Release()
	ctx, cancel := context.WithTimeout(t.Context(), netlab.Patience)
	defer cancel()
	second, err := LockDeletions(ctx, time.Minute)
	must(t, err)
	second.Release()
}
