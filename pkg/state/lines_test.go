package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines")
	for _, want := range [][]string{nil, {"a b", "c"}, {"d"}, nil} {
		if err := WriteLines(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadLines(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("read %q, error %v; want %q", got, err, want)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file without lines: %v", err)
	}
	if _, err := ReadLines(filepath.Dir(path)); err == nil {
		t.Error("a directory has lines")
	}
}
