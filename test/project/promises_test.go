package project

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPromises makes sure that the tests are there which the pages say guard a promise: those in the last column of their tables.
func TestPromises(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if script, ok := strings.CutSuffix(path, ".txtar"); ok {
			tests.WriteString("\nfunc TestScripts/" + filepath.Base(script) + "(")
		}
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"docs/project/security.md", "docs/project/reliability.md", "SECURITY.md"} {
		named, guards := 0, false
		for line := range strings.Lines(read(t, "../../"+page)) {
			if !strings.HasPrefix(line, "|") {
				guards = false
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			last := cells[len(cells)-1]
			guards = guards || strings.TrimSpace(last) == "guarded by"
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(last, -1) {
				if !guards {
					continue
				}
				named++
				want := `"` + m[1] // a row of test/conformance
				if regexp.MustCompile(`^(Test|Fuzz)[\w/]+$`).MatchString(m[1]) {
					want = "\nfunc " + m[1] + "("
				}
				if !strings.Contains(tests.String(), want) {
					t.Errorf("%s: there is no test %q", page, m[1])
				}
			}
		}
		if named < 8 {
			t.Errorf("%s names %d tests", page, named)
		}
	}
}

// TestReliabilityFigures makes sure that the figures for users are those that were measured.
func TestReliabilityFigures(t *testing.T) {
	page, rows := read(t, "../../docs/project/reliability.md"), read(t, "../../docs/project/conformance.md")
	measured := read(t, "../../docs/project/benchmarks/README.md")
	compared := 0
	for line := range strings.Lines(page) {
		if strings.Contains(line, " → ") && strings.HasPrefix(line, "|") {
			if compared++; !strings.Contains(measured, line) {
				t.Errorf("docs/project/benchmarks has no such line any more: %s", line)
			}
		}
		for _, figure := range regexp.MustCompile(`\d{4} of \d{4}`).FindAllString(line, -1) {
			if compared++; !strings.Contains(rows, "**"+figure+"**") {
				t.Errorf("docs/project/conformance.md does not have %q any more", figure)
			}
		}
	}
	if compared < 8 {
		t.Errorf("only %d figures were found", compared)
	}
}
