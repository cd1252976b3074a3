package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tooSlow matches what lets the speed of a machine decide a test: a limit of how long something may take, in Go or for a program that the test runs, and a
// program's pause. One of less than a fifth of a second is that of a loop. What goes on until it is ended sleeps for ever, or for a day: a thousand seconds can be over first.
var tooSlow = regexp.MustCompile(`if .*(?:took|time\.Since\(\w+\)) > |\("timeout", "\d|\bping\b.*-W[ ",]+\d|\bnc -w \d|--max-time[ ",]+\d|\bsleep[", (]+(0?\.[2-9]|[1-9]\d{0,3}[smh]?\b)`)

// waiters are functions that are told for how long to wait.
var waiters = []string{"After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause",
	"SetDeadline", "SetReadDeadline", "SetWriteDeadline", "Ping", "DialTCP", "DialUDP", "DialSCTP", "AwaitFor"}

// maySay are the names of constants that say for how long a test waits: for what has to happen, and for what must not.
var maySay = []string{"Patience", "silence"}

// mayWait are files and folders that may wait for a time of their own.
var mayWait = map[string]string{
	"test/netlab/eventually.go":           "it is how all others wait",
	"test/bench/":                         "benchmarks measure, and what they wait for decides nothing",
	"test/conformance/standalone_test.go": "cni-conformance ends a stranger's plugin that never ends",
	"test/packages/kubelet/":              "it asks a runtime again and again, and has no netlab, as a module of its own",
	"test/systemd/main_test.go":           "its services are some that take time to start and to stop",
}

// TestWaits makes sure that tests wait for what has to happen, by netlab.Eventually, Until or Patience, and for nothing else.
func TestWaits(t *testing.T) {
	for _, dir := range []string{"cmd", "pkg", "plugins", "scripts", "test"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			name := strings.TrimPrefix(path, "../../")
			isGo := strings.HasSuffix(name, "_test.go") || dir == "test" && strings.HasSuffix(name, ".go")
			if err != nil || !isGo && !strings.HasSuffix(name, ".txtar") || name == "test/project/waits_test.go" {
				return err
			}
			if slices.ContainsFunc(slices.Collect(maps.Keys(mayWait)), func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				return nil
			}
			text := read(t, path)
			lines, files := strings.Split(text, "\n"), token.NewFileSet()
			for i, line := range lines {
				if tooSlow.MatchString(line) {
					t.Errorf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
				}
			}
			if !isGo {
				return nil
			}
			file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, limit := range limits(n) {
					line := files.Position(limit.Pos()).Line
					t.Errorf("%s:%d: %s", name, line, strings.TrimSpace(lines[line-1]))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// limits returns what in a part of a test says for how long to wait: arguments, constants, the limit of a client, the end of a loop.
func limits(n ast.Node) (list []ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f, is := n.Fun.(*ast.SelectorExpr); is && slices.Contains(waiters, f.Sel.Name) {
			for _, a := range n.Args {
				list = append(list, a)
			}
		} else if is && isOf(f, "time", "Sleep") {
			return []ast.Node{n}
		}
	case *ast.GenDecl:
		for _, s := range n.Specs {
			v, is := s.(*ast.ValueSpec)
			for i := 0; is && i < len(v.Values); i++ {
				if !slices.Contains(maySay, v.Names[i].Name) && (n.Tok == token.CONST || isFixed(v.Values[i])) {
					list = append(list, v.Values[i])
				}
			}
		}
	case *ast.AssignStmt:
		for _, value := range n.Rhs {
			if n.Tok == token.DEFINE && isFixed(value) {
				list = append(list, value)
			}
		}
	case *ast.KeyValueExpr:
		if key, is := n.Key.(*ast.Ident); is && key.Name == "Timeout" {
			list = append(list, n.Value)
		}
	case *ast.ForStmt:
		if n.Init != nil {
			list = append(list, n.Init)
		}
	}
	return slices.DeleteFunc(list, func(n ast.Node) bool { return !hasUnit(n) })
}

// isFixed reports whether a value is written down, as 5*time.Second is: nothing is called for it, and it is no table.
func isFixed(value ast.Expr) bool {
	fixed := true
	ast.Inspect(value, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.CallExpr, *ast.CompositeLit, *ast.FuncLit:
			fixed = false
		}
		return fixed
	})
	return fixed
}

// hasUnit reports whether something names a unit of time, as 5*time.Second does.
func hasUnit(n ast.Node) (has bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if f, is := n.(*ast.SelectorExpr); is {
			has = has || isOf(f, "time", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour")
		}
		_, isBody := n.(*ast.FuncLit)
		return !isBody
	})
	return has
}

// isOf reports whether a name is one of these of a package.
func isOf(f *ast.SelectorExpr, of string, names ...string) bool {
	x, is := f.X.(*ast.Ident)
	return is && x.Name == of && slices.Contains(names, f.Sel.Name)
}
