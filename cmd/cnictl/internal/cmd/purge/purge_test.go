package purge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestFileMeanwhile: a directory of leases or notes that has got something since it was looked at stays, and goes without it: a lease, an address that
// this host holds in etcd, or one that etcd does not know to be free.
func TestFileMeanwhile(t *testing.T) {
	for _, c := range []struct {
		of    func(dir string) remover
		file  string
		names string // what the error has to name
		stays []string
	}{
		{func(dir string) remover { return leaseDir(dir) }, "10.0.0.7", "10.0.0.7", []string{"last_reserved_ip.0", "lock"}},
		{func(dir string) remover { return notesDir(dir) }, "held/web", "/held", nil},
		{func(dir string) remover { return notesDir(dir) }, "open/web", "/open", nil},
	} {
		dir := t.TempDir()
		for _, file := range append(c.stays, c.file) {
			path := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("web\neth0"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.of(dir).Remove(t.Context()); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("with %s: %v", c.file, err)
		}
		for _, file := range c.stays {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil && file != "lock" {
				t.Error(err)
			}
		}
		if err := os.Remove(filepath.Join(dir, c.file)); err != nil { // which is there
			t.Fatal(err)
		}
		if err := c.of(dir).Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("without %s it is there: %v", c.file, err)
		}
	}
}

// TestPortMeanwhile: a bridge that has got a port since it was looked at stays, as does another link that has got its name.
func TestPortMeanwhile(t *testing.T) {
	host := netlab.NewHost(t)
	host.MustRun(t, "sh", "-ec", "ip link add lan0 index 100 type bridge; ip link add mine0 index 99 type bridge; ip link add port0 master lan0 type veth peer name end0")
	remove := func(index int) (err error) {
		host.Do(func() { err = ownLink{"lan0", index}.Remove(t.Context()) })
		return err
	}
	if err := remove(100); err == nil || !strings.Contains(err.Error(), "port0") {
		t.Errorf("with a port: %v", err)
	}
	host.MustRun(t, "ip", "link", "set", "port0", "nomaster")
	if err := remove(99); err != nil {
		t.Error(err)
	}
	host.MustRun(t, "sh", "-ec", "ip link show lan0; ip link show mine0")
	if err := remove(100); err != nil {
		t.Error(err)
	}
	if left := host.MustRun(t, "ip", "-br", "link"); strings.Contains(left, "lan0") {
		t.Errorf("without one it is there:\n%s", left)
	}
}
