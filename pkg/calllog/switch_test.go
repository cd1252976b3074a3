package calllog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestSwitch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log", "cnibox")
	look := func(when string, want Status) {
		t.Helper()
		want.File = filepath.Join(dir, current)
		if got, err := Look(dir); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", when, got, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	look("at first", Status{})
	must(Off(dir))
	look("off without a log", Status{})
	must(On(dir, 1<<20))
	look("on", Status{On: true, Limit: 1 << 20, Size: int64(headLength)})
	for path, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, current): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v %v, want %v", path, st.Mode(), err, mode)
		}
	}
	numbered(t, dir, "first", 2)
	must(On(dir, MaxSize)) // a number as long as any
	must(Off(dir))
	must(Off(dir))
	if Begin(dir) != nil {
		t.Error("off, and it is on")
	}
	if all := read(t, dir); len(all) != 2 {
		t.Errorf("off, it has %d calls", len(all))
	}
	must(On(dir, MinSize))
	numbered(t, dir, "second", 1)
	all := read(t, dir)
	if len(all) != 3 || all[2].ContainerID != "second0" {
		t.Errorf("on again, it has %v", all)
	}
	st, err := os.Stat(filepath.Join(dir, current))
	must(err)
	look("on again", Status{On: true, Limit: MinSize, Size: st.Size()})
}

// The file's owner may empty it: it goes on with the usual size, and can be given another.
func TestEmptied(t *testing.T) {
	dir := turnedOn(t, MinSize)
	numbered(t, dir, "first", 10)
	if err := os.Truncate(filepath.Join(dir, current), 0); err != nil {
		t.Fatal(err)
	}
	numbered(t, dir, "second", 10)
	if s, err := Look(dir); err != nil || s.Limit != DefaultSize {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := On(dir, MinSize); err != nil {
		t.Fatal(err)
	}
	if s, err := Look(dir); err != nil || s.Limit != MinSize {
		t.Errorf("got %+v, %v", s, err)
	}
	if all := read(t, dir); len(all) != 10 {
		t.Errorf("%d calls", len(all))
	}
}

// A first line that names no size that could be is as none.
func TestImpossibleSize(t *testing.T) {
	for _, size := range []int64{0, 1, MinSize - 1, MaxSize + 1, 9_999_999_999} {
		dir := turnedOn(t, MinSize)
		if err := os.WriteFile(filepath.Join(dir, current), head(size), 0o600); err != nil {
			t.Fatal(err)
		}
		numbered(t, dir, "c", 10)
		if s, err := Look(dir); err != nil || s.Limit != DefaultSize || len(read(t, dir)) != 10 {
			t.Errorf("%d: %+v, %v", size, s, err)
		}
	}
}

func TestForeignDirectory(t *testing.T) {
	tests := map[string]func(dir string) error{
		"of somebody else": func(dir string) error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.Chown(dir, 1000, 1000)
		},
		"a link": func(dir string) error { return errors.Join(os.Mkdir(dir+".else", 0o700), os.Symlink(dir+".else", dir)) },
		"a file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	}
	for name, place := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "log")
			if err := place(dir); err != nil {
				t.Fatal(err)
			}
			if err := On(dir, MinSize); err == nil {
				t.Error("it was turned on")
			}
		})
	}
}

// A directory that others can read is made root's alone.
func TestOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := On(dir, MinSize); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestUnusable(t *testing.T) {
	for says, err := range map[string]error{"as root": os.ErrPermission, "move it away": errForeign, "what is in the way": os.ErrInvalid} {
		if got := unusable(err); !errors.Is(got, err) || !strings.Contains(plugin.AsError(got).Details, says) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
