package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// notMended says which fields of configurations ADD reads and Mend does not, and why.
var notMended = map[string]map[string]string{
	"contivk8s":  {"socket": "contiv's agent made the interface, and is asked nothing later", "timeout": "as socket"},
	"dnsname":    {"nodeServers": "the runtime wrote the servers into the container's files"},
	"hostdevice": {"dir": "it finds the device, which has moved since", "pci": "as dir"},
	"macvlan":    {"queue": "the kernel has one queue for all interfaces of a master"},
	"tap":        {"group": "nobody but the container's program changes it", "label": "as group", "multiQueue": "as group", "owner": "as group"},
}

// TestMendReadsWhatAddReads makes sure that a new key is looked at by CHECK, repair and doctor too: each field of a plugin's configuration that Add
// reads, or what it calls in its package, is read by Mend, or what that calls.
func TestMendReadsWhatAddReads(t *testing.T) {
	dirs, err := filepath.Glob("../../plugins/*/*")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, dir := range dirs {
		name, p := filepath.Base(dir), readPlugin(t, dir)
		if len(p.functions["Mend"]) == 0 {
			continue
		}
		mended := p.reads("Mend")
		for field := range p.reads("Add") {
			compared++
			if _, excused := notMended[name][field]; mended[field] == excused {
				t.Errorf("%s: Add reads the field %s of the configuration: Mend reads it: %t, excused here: %t", dir, field, mended[field], excused)
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d fields were compared", compared)
	}
}

// pluginSource is the source of a plugin's package: its functions and methods by name, and the fields of its configuration.
type pluginSource struct {
	functions map[string][]*ast.FuncDecl
	fields    map[string]bool
}

func readPlugin(t *testing.T, dir string) pluginSource {
	t.Helper()
	p := pluginSource{map[string][]*ast.FuncDecl{}, map[string]bool{}}
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				p.functions[n.Name.Name] = append(p.functions[n.Name.Name], n)
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && strings.Contains(strings.ToLower(n.Name.Name), "conf") {
					for _, list := range s.Fields.List {
						for _, name := range list.Names {
							p.fields[name.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	return p
}

// reads returns the fields that a function reads, or what it calls. parse, which fills them, is no reader.
func (p pluginSource) reads(function string) map[string]bool {
	fields, reached := map[string]bool{}, map[string]bool{"parse": true}
	for todo := []string{function}; len(todo) > 0; todo = todo[1:] {
		if reached[todo[0]] {
			continue
		}
		reached[todo[0]] = true
		for _, f := range p.functions[todo[0]] {
			names := map[string]bool{}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					fields[n.Sel.Name] = fields[n.Sel.Name] || p.fields[n.Sel.Name]
				case *ast.Ident:
					names[n.Name] = true
				}
				return true
			})
			todo = append(todo, slices.Collect(maps.Keys(names))...)
		}
	}
	maps.DeleteFunc(fields, func(_ string, of bool) bool { return !of })
	return fields
}
