package node

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLoadPassesOverWhatIsNoFile finds a network beside a pipe, which nobody writes to, a directory and a link that leads nowhere.
func TestLoadPassesOverWhatIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		unix.Mkfifo(at("1.conflist"), 0o600), os.Mkdir(at("2.conf"), 0o700), os.Symlink("nowhere", at("3.json")),
		os.WriteFile(at("4.conflist"), []byte(`{"cniVersion": "1.1.0", "name": "demo", "plugins": [{"type": "bridge"}]}`), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	networks, broken, err := Load(dir)
	if err != nil || len(networks) != 1 || networks[0].Name != "demo" {
		t.Errorf("networks %v, error %v", networks, err)
	}
	if len(broken) != 2 || broken[0].What != at("1.conflist") || broken[1].What != at("3.json") { // libcni itself leaves out directories
		t.Errorf("broken: %+v", broken)
	}
}
