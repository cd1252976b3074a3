package netns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "/below", "/none", "/dev/null", "/proc/self/status", "/proc/self/ns/mnt", "/proc/999999999/ns/net"} {
		if _, err := Open(path); !errors.Is(err, ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	n, err := Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if own, err := IsOwn(n); !own || err != nil {
		t.Errorf("our own namespace: %v, %v", own, err)
	}
}

// TestCookieIsNotRead: a namespace whose cookie can't be read is not one without a cookie.
func TestCookieIsNotRead(t *testing.T) {
	before, err := OwnCookie()
	if err != nil {
		t.Fatal(err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: files.Max}); err != nil {
		t.Fatal(err)
	}
	cookie, err := OwnCookie()
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); restored != nil || !errors.Is(err, unix.EMFILE) {
		t.Errorf("without files left: %d, %v; %v", cookie, err, restored)
	}
	if cookie, err := OwnCookie(); cookie != before || err != nil {
		t.Errorf("%d, %v; it was %d", cookie, err, before)
	}
}
