package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records")
	for _, want := range [][]string{nil, {"a b", "c\n"}, {"d"}, nil} {
		var records []*conf.Object
		for _, text := range want {
			o := conf.New()
			o.Set("text", text)
			records = append(records, o)
		}
		if err := WriteRecords(path, records, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readTexts(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("read %q, error %v; want %q", got, err, want)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file without records: %v", err)
	}
	if err := os.WriteFile(path, []byte("10.88.0.2 trusted\n{\"text\":\"a\"}\n\n{\"text\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readTexts(path); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("of a torn file: %q, %v", got, err)
	}
	if _, err := ReadRecords(filepath.Dir(path)); err == nil {
		t.Error("a directory has records")
	}
}

func readTexts(path string) (texts []string, err error) {
	records, err := ReadRecords(path)
	for _, r := range records {
		text := ""
		r.String("text", &text)
		texts = append(texts, text)
	}
	return texts, err
}

func TestRemove(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	under := filepath.Join(path, "below")
	for _, gone := range []string{under, path, path} {
		if err := Remove(gone); err != nil {
			t.Error(err)
		}
	}
	if err := os.MkdirAll(under, 0o700); err != nil {
		t.Fatal(err)
	}
	if Remove(path) == nil {
		t.Error("a directory with a file was removed")
	}
}
