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

// TestLeaseMeanwhile: a directory of leases that has got a lease since it was looked at stays, and goes without it.
func TestLeaseMeanwhile(t *testing.T) {
	dir := t.TempDir()
	lease, last := filepath.Join(dir, "10.0.0.7"), filepath.Join(dir, "last_reserved_ip.0")
	for _, file := range []string{lease, last, filepath.Join(dir, "lock")} {
		if err := os.WriteFile(file, []byte("web\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := leaseDir(dir).Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "10.0.0.7") {
		t.Errorf("with a lease: %v", err)
	}
	for _, file := range []string{lease, last} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(lease); err != nil {
		t.Fatal(err)
	}
	if err := leaseDir(dir).Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("without one it is there: %v", err)
	}
}

// TestNotesMeanwhile: a directory of notes that has got something since it was looked at stays: an address that this host holds in etcd, or one
// that etcd does not know to be free.
func TestNotesMeanwhile(t *testing.T) {
	for _, of := range []string{"held", "open"} {
		dir := t.TempDir()
		note := filepath.Join(dir, of, "web")
		if err := errors.Join(os.MkdirAll(filepath.Dir(note), 0o700), os.WriteFile(note, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := notesDir(dir).Remove(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Dir(note)) {
			t.Errorf("with a note in %s: %v", of, err)
		}
		if err := os.Remove(note); err != nil { // which is there
			t.Fatal(err)
		}
		if err := notesDir(dir).Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("without one it is there: %v", err)
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
