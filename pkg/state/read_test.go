package state

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadsRegularFilesOfOneMiB(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	full := bytes.Repeat([]byte("x"), maxFile)
	for name, content := range map[string][]byte{"empty": nil, "full": full, "over": append(full, 'x')} {
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(unix.Mkfifo(path("pipe"), 0o600), os.Symlink("full", path("link")), os.Truncate(path("over"), 4<<30)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"empty": 0, "full": maxFile, "link": maxFile} {
		if content, err := Read(path(name)); err != nil || len(content) != want {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(content), err, want)
		}
	}
	for file, want := range map[string]string{
		path("over"): "larger than 1 MiB", path("pipe"): "not a regular file", dir: "not a regular file", "/dev/zero": "not a regular file",
	} {
		if content, err := Read(file); content != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v; want %q", file, len(content), err, want)
		}
	}
	if _, err := Read(path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that it does not exist", err)
	}
	if content, err := Read("/proc/self/status"); err != nil || len(content) == 0 { // a file whose size is said to be 0
		t.Errorf("/proc/self/status: %q, %v", content, err)
	}
}
