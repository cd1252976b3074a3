package project

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// negated matches commands of a shell that have to fail, and of which the shell heeds nothing, as more comes behind.
var negated = regexp.MustCompile(`(?m)^\s*! (?:>&1|[^|&\n])+\n+\s*\S|(?m)'(.*; )?! [^;'|&\n]+; `)

// negatedInGo matches the same in a shell's text in Go. A loop is as good as its last round.
var negatedInGo = regexp.MustCompile(`(?:^|[;\n{(]|&&|\|\||\b(?:do|then|else)\s)\s*! (?:>&\d|\|[^|]|[^;|&\n])+(?:;|\n\s*\S)`)

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

// TestGoHeedsFailures is TestScriptsHeedFailures for what tests in Go give a shell, and for all other texts there: none is like that by chance.
func TestGoHeedsFailures(t *testing.T) {
	files := token.NewFileSet()
	for _, dir := range []string{"cmd", "pkg", "plugins", "scripts", "test"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				text := textOf(n)
				for _, found := range negatedInGo.FindAllString(text, -1) {
					t.Errorf("%s: %s", files.Position(n.Pos()), found)
				}
				return text == ""
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// textOf returns the text that an expression makes, with VALUE for what is known only when it runs; "" if it makes none.
func textOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(n.Value)
		return text
	case *ast.BinaryExpr:
		if left, right := textOf(n.X), textOf(n.Y); n.Op == token.ADD && left+right != "" {
			return cmp.Or(left, "VALUE") + cmp.Or(right, "VALUE")
		}
	}
	return ""
}
