package explain

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write own.tsv anew")

// TestOwn compares own.tsv with the source, and has each message of it explained as it is printed.
func TestOwn(t *testing.T) {
	want := strings.Join(ownMessages(t), "\n") + "\n"
	if *update {
		if err := os.WriteFile("own.tsv", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return // the one that was there is what is compiled in
	}
	if want != ownTSV {
		t.Error("own.tsv is not what the source has: make messages")
	}
	n := 0
	for line := range strings.Lines(want) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		n++
		for _, text := range []string{strings.ReplaceAll(f[1], "…", "something"), `plugin type="bridge" name="demo" failed (add): ` + strings.ReplaceAll(f[1], "…", "x y") + "; " + f[2]} {
			if e := Explain(text); len(e.Findings) == 0 || e.Findings[0].Meaning == "" {
				t.Errorf("%v in %q", ids(e), text)
			}
		}
	}
	t.Logf("%d messages", n)
	if n < 400 {
		t.Errorf("only %d messages are found", n)
	}
}

// source is what is known of the program's source, to find messages in it.
type source struct {
	files     map[string][]*ast.File
	constants map[string]map[string]string // by directory and name
	codes     map[string]map[string]string // the codes of findings, by directory and variable
	printers  map[string]map[string]*ast.FuncType
}

// ownMessages returns the lines of own.tsv: each call of a function of ours that has a format, and each types.Error.
func ownMessages(t *testing.T) []string {
	s := source{map[string][]*ast.File{}, map[string]map[string]string{}, map[string]map[string]string{}, map[string]map[string]*ast.FuncType{}}
	for _, root := range []string{"pkg", "plugins", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../../../../..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			s.files[filepath.Dir(path)] = append(s.files[filepath.Dir(path)], file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dirs := slices.Sorted(maps.Keys(s.files))
	for _, dir := range slices.Concat(dirs, dirs) { // a constant may be made of another package's
		if s.constants[dir] == nil {
			s.constants[dir], s.codes[dir], s.printers[dir] = map[string]string{}, map[string]string{}, map[string]*ast.FuncType{}
		}
		for _, f := range s.files[dir] {
			ast.Inspect(f, func(n ast.Node) bool { s.declare(dir, n); return true })
		}
	}
	lines := map[string]bool{}
	for dir, files := range s.files {
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				if line := s.message(dir, n); line != "" {
					lines[line] = true
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(lines))
}

// declare notes a constant, the code of a finding, or a function that prints.
func (s source) declare(dir string, n ast.Node) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, value := range n.Values {
			if text := s.text(dir, value); text != "" && text != "…" {
				s.constants[dir][n.Names[i].Name] = text
			}
			if code := codeIn(value); code != "" {
				s.codes[dir][n.Names[i].Name] = code
			}
		}
	case *ast.AssignStmt:
		if f, is := n.Rhs[0].(*ast.FuncLit); is && index(f.Type, "format") >= 0 {
			if name, is := n.Lhs[0].(*ast.Ident); is {
				s.printers[dir][name.Name] = f.Type
			}
		}
	case *ast.FuncDecl:
		if index(n.Type, "format") >= 0 {
			s.printers[dir][n.Name.Name] = n.Type
		}
	}
}

// codeIn returns the code in a declaration such as codes.Declare(finding.Code{Name: "…"}) or kinds.declare(…, "…", …).
func codeIn(e ast.Expr) (code string) {
	call, is := e.(*ast.CallExpr)
	if !is {
		return ""
	}
	if f, is := call.Fun.(*ast.SelectorExpr); !is || !strings.EqualFold(f.Sel.Name, "declare") {
		return ""
	}
	ast.Inspect(call, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && code == "" && l.Kind == token.STRING {
			code, _ = strconv.Unquote(l.Value)
		}
		return code == ""
	})
	return code
}

// index returns which parameter has a name, -1 if none has.
func index(f *ast.FuncType, name string) int {
	i := 0
	for _, field := range f.Params.List {
		for _, n := range field.Names {
			if n.Name == name {
				return i
			}
			i++
		}
	}
	return -1
}

// message returns the line of a call that prints, "" for anything else.
func (s source) message(dir string, n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		name, in, receiver := called(dir, n.Fun)
		if name == "NewError" && in != dir && len(n.Args) == 3 {
			return s.line(dir, "", n.Args[1], n.Args[2])
		}
		for _, other := range append([]string{dir}, slices.Sorted(maps.Keys(s.printers))...) {
			f := s.printers[other][name]
			if f == nil || other != dir && filepath.Base(other) != in || len(n.Args) <= index(f, "format") {
				continue
			}
			code := s.codes[dir][receiver]
			if len(n.Args) > 0 && code == "" {
				if v, is := n.Args[0].(*ast.Ident); is {
					code = s.codes[dir][v.Name]
				}
			}
			var remedy ast.Expr
			if i := index(f, "remedy"); i >= 0 {
				remedy = n.Args[i]
			}
			return s.line(dir, code, n.Args[index(f, "format")], remedy)
		}
	case *ast.CompositeLit:
		if f, is := n.Type.(*ast.SelectorExpr); is && f.Sel.Name == "Error" {
			values := map[string]ast.Expr{}
			for _, e := range n.Elts {
				if kv, is := e.(*ast.KeyValueExpr); is {
					values[kv.Key.(*ast.Ident).Name] = kv.Value
				}
			}
			if values["Msg"] != nil {
				return s.line(dir, "", values["Msg"], values["Details"])
			}
		}
	}
	return ""
}

// called returns what a call calls, the package that it names, and the receiver.
func called(dir string, f ast.Expr) (name, in, receiver string) {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name, filepath.Base(dir), ""
	case *ast.SelectorExpr:
		if x, is := f.X.(*ast.Ident); is {
			return f.Sel.Name, x.Name, x.Name
		}
	}
	return "", "", ""
}

var (
	verb  = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)
	gaps  = regexp.MustCompile(`…(?:\s*…)+`)
	blank = regexp.MustCompile(`\s+`)
)

// line writes a message. One that has too little of its own to be known by is left out.
func (s source) line(dir, code string, message, remedy ast.Expr) string {
	text, do := plain(s.text(dir, message)), ""
	if remedy != nil {
		do = plain(s.text(dir, remedy))
	}
	if do == "…" || code != "" {
		do = ""
	}
	if inCommon(text, text) < leastOfOwn {
		return ""
	}
	return code + "\t" + text + "\t" + do
}

func plain(text string) string {
	text = strings.ReplaceAll(verb.ReplaceAllString(text, "…"), "%%", "%")
	return strings.TrimSpace(blank.ReplaceAllString(gaps.ReplaceAllString(text, "…"), " "))
}

// text returns what is constant in an expression, with … for all else.
func (s source) text(dir string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return s.text(dir, e.X) + s.text(dir, e.Y)
		}
	case *ast.ParenExpr:
		return s.text(dir, e.X)
	case *ast.Ident:
		if text, is := s.constants[dir][e.Name]; is {
			return text
		}
	case *ast.SelectorExpr:
		if x, is := e.X.(*ast.Ident); is {
			for _, other := range slices.Sorted(maps.Keys(s.constants)) {
				if text, is := s.constants[other][e.Sel.Name]; is && filepath.Base(other) == x.Name {
					return text
				}
			}
		}
	case *ast.CallExpr:
		if f, is := e.Fun.(*ast.SelectorExpr); is && f.Sel.Name == "Sprintf" {
			return s.text(dir, e.Args[0])
		}
	}
	return "…"
}
