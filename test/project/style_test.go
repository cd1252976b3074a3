package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// mostLines is how long a file of the product may be.
const mostLines = 400

// TestStyle makes sure that the rules of CONTRIBUTING.md are so that can be counted: the length of files, that no function assigns to a variable of
// its package, and that no context carries values.
func TestStyle(t *testing.T) {
	packages := map[string][]*ast.File{}
	files := token.NewFileSet()
	for _, dir := range []string{"cmd", "pkg", "plugins"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if n := strings.Count(read(t, path), "\n"); n > mostLines {
				t.Errorf("%s has %d lines, at most %d are wanted", path, n, mostLines)
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "WithValue" {
					t.Errorf("%s: a value of a context is seen by nobody who reads the call: give it as an argument, or in the request", files.Position(s.Pos()))
				}
				return true
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packages {
		for _, name := range changed(p) {
			t.Errorf("%s: a variable of the package, %s, is changed", files.Position(name.Pos()), name.Name)
		}
	}
}

// changed returns where functions of a package change its variables.
func changed(files []*ast.File) (names []*ast.Ident) {
	variables := map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					for _, name := range s.(*ast.ValueSpec).Names {
						variables[name.Name] = true
					}
				}
			}
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			own := map[string]bool{} // what the function calls so itself
			ast.Inspect(d, func(n ast.Node) bool {
				var targets []ast.Expr
				switch s := n.(type) {
				case *ast.Field:
					for _, name := range s.Names {
						own[name.Name] = true
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						own[name.Name] = true
					}
				case *ast.AssignStmt:
					if s.Tok != token.DEFINE {
						targets = s.Lhs
						break
					}
					for _, name := range s.Lhs {
						own[name.(*ast.Ident).Name] = true
					}
				case *ast.IncDecStmt:
					targets = []ast.Expr{s.X}
				}
				for _, target := range targets {
					if name := variable(target); name != nil && variables[name.Name] && !own[name.Name] {
						names = append(names, name)
					}
				}
				return true
			})
		}
	}
	return names
}

// variable returns the variable that an assignment changes, or changes a part of.
func variable(target ast.Expr) *ast.Ident {
	switch x := target.(type) {
	case *ast.Ident:
		return x
	case *ast.SelectorExpr:
		return variable(x.X)
	case *ast.IndexExpr:
		return variable(x.X)
	}
	return nil
}
