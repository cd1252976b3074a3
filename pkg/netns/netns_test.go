package netns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
