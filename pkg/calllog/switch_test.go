package calllog

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSwitch(t *testing.T) {
	t.Chdir(turnedOn(t, MinSize))
	if Begin("") != nil {
		t.Error("no directory is this one")
	}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(dir, 0o777))
	must(Off(dir))
	for _, limit := range []int64{1 << 20, MaxSize, MinSize} { // the second is a number as long as any
		must(On(dir, limit))
		want := Status{File: filepath.Join(dir, current), On: true, Limit: limit, Size: int64(headLength)}
		if s, err := Look(dir); err != nil || s != want {
			t.Errorf("%+v, %v; want %+v", s, err, want)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("a directory that others could read: mode %v, %v", st.Mode(), err)
	}
}

// The file's owner may empty it, and write a size there that can't be: it goes on with the usual one, and can be given another.
func TestNoSize(t *testing.T) {
	for _, text := range []string{"", string(head(0)), string(head(MinSize - 1)), string(head(MaxSize + 1)), string(head(9_999_999_999))} {
		dir := turnedOn(t, MinSize)
		if err := os.WriteFile(filepath.Join(dir, current), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		numbered(t, dir, "c", 10)
		for _, limit := range []int64{DefaultSize, MinSize} {
			if s, err := Look(dir); err != nil || s.Limit != limit || len(read(t, dir)) != 10 {
				t.Errorf("%q: %+v, %v; want a limit of %d", text, s, err, limit)
			}
			if err := On(dir, MinSize); err != nil {
				t.Fatal(err)
			}
		}
	}
}
