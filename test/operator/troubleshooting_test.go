package operator

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMessages makes sure that each error message which docs/operate/troubleshooting.md explains is still one of the code's: its constant
// parts, between the signs for what differs, are in one text of the source, in this order.
func TestMessages(t *testing.T) {
	t.Parallel()
	_, errors, _ := strings.Cut(read(t, "../../docs/operate/troubleshooting.md"), "\n## By error message\n")
	errors, _, _ = strings.Cut(errors, "\n### Messages of runtimes\n")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(errors, -1)
	if len(rows) < 60 {
		t.Fatalf("%d messages are found", len(rows))
	}
	source := strings.Join(textsOf(t, "../../cmd", "../../pkg", "../../plugins"), "\n")
	for _, row := range rows {
		var parts []string
		for part := range strings.SplitSeq(row[1], "…") {
			if part = strings.TrimSpace(part); part != "" {
				parts = append(parts, regexp.QuoteMeta(part))
			}
		}
		if !regexp.MustCompile(strings.Join(parts, ".*")).MatchString(source) {
			t.Errorf("no text of the source has %q", row[1])
		}
	}
}

// textsOf returns the string literals of Go files below directories, without line feeds. Tests and the tables of cnictl explain, which
// repeat messages, are left out.
func textsOf(t *testing.T, dirs ...string) (texts []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/explain/") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files := token.NewFileSet()
			var s scanner.Scanner
			s.Init(files.AddFile(path, -1, len(source)), source, nil, 0)
			for {
				_, kind, literal := s.Scan()
				if kind == token.EOF {
					return nil
				}
				if kind == token.STRING {
					text, err := strconv.Unquote(literal)
					if err != nil {
						return err
					}
					texts = append(texts, strings.ReplaceAll(text, "\n", " "))
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}
