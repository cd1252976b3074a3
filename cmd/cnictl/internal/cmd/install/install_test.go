package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/test/netlab"
)

// Tests install the built cnibox.
func TestMain(m *testing.M) { netlab.Main(m) }

func TestOnlyOneInstallerAtATime(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, From: netlab.Cnibox(t), Names: []string{"bridge"}, Link: Stub}
	d, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(d.join(lockFile)); err != nil || file.Mode() != 0o600 {
		t.Fatalf("others than root can lock it: %v, %v", file, err)
	}
	_, err = Install(o)
	if err == nil || !strings.Contains(err.Error(), "another cnictl") {
		t.Errorf("got error %v", err)
	}
	d.close()
	others, err := os.Open(dir)
	if err == nil {
		defer others.Close()
		err = unix.Flock(int(others.Fd()), unix.LOCK_EX) // which any user can do
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Install(o); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.join(lockFile)); err == nil {
		t.Error("the lock's file stays")
	}
}

// The manifest is a file that anybody may have written to.
func TestNamesNeverLeaveTheDirectory(t *testing.T) {
	for _, name := range []string{"../evil", "/evil", ".", "..", "", ".hidden", pluginfile.Binary} {
		dir := t.TempDir()
		text, err := json.Marshal(manifest{[]string{name}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, manifestFile), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Uninstall(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("uninstall %q: %v", name, err)
		}
		_, err = Install(Options{Dir: dir, From: netlab.Cnibox(t), Names: []string{name}, Link: Stub})
		if err == nil {
			t.Errorf("%q was installed", name)
		}
	}
}
