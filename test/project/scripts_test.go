package project

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// negated matches commands of a shell that have to fail, and of which the shell heeds nothing, as more comes behind.
var negated = regexp.MustCompile(`(?m)^\s*! (?:>&1|[^|&\n])+\n+\s*\S|(?m)'(.*; )?! [^;'|&\n]+; `)

// TestScriptsHeedFailures: a shell that ends at errors, as those of scripts do, does not end at a command that is negated (POSIX, set -e). `command && exit 1`
// says the same.
func TestScriptsHeedFailures(t *testing.T) {
	scripts, err := filepath.Glob("../*/testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		archive := txtar.Parse([]byte(read(t, path)))
		for line := range strings.Lines(string(archive.Comment)) {
			if strings.Contains(line, "'") && negated.MatchString(line) {
				t.Errorf("%s: %s", path, line)
			}
		}
		for _, file := range archive.Files {
			for _, found := range negated.FindAllString(string(file.Data), -1) {
				t.Errorf("%s: %s: %s", path, file.Name, found)
			}
		}
	}
}
