package project

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// decides matches what lets the speed of a machine decide a test: a pause of a fixed length, or a limit of how long something may take.
var decides = regexp.MustCompile(`time\.Sleep\(|if .*(?:took|time\.Since\(\w+\)) > `)

// TestWaits makes sure that tests wait for what has to happen, by netlab.Eventually or Until, and for nothing else.
func TestWaits(t *testing.T) {
	for _, dir := range []string{"cmd", "pkg", "plugins", "scripts", "test"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "waits_test.go") {
				return err
			}
			for i, line := range strings.Split(read(t, path), "\n") {
				if decides.MatchString(line) {
					t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(line))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
