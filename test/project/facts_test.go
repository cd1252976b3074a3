package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/plugins/known"
)

// ownWords are files outside of plugins/ that may have the name of a plugin or a path of its, and why.
var ownWords = map[string]string{
	"pkg/process/layout/layout.go":                       "the plugin that is a whole copy of cnibox",
	"cmd/cnictl/internal/cmd/bugreport/configuration.go": "a capability",
	"cmd/cnictl/internal/cmd/bugreport/host.go":          "names of others' programs",
	"cmd/cnictl/internal/cmd/explain/look.go":            "a group of a pattern",
	"cmd/cnictl/internal/cmd/leases/move.go":             "the two plugins between which leases move",
	"cmd/cnictl/internal/cmd/newnet/kinds.go":            "the plugins of which it writes the configuration",
	"pkg/ipam/shared/shared.go":                          "the plugin's own package",
	"pkg/link/kinds.go":                                  "kinds of links",
	"pkg/netfilter/tables.go":                            "a family of nf_tables",
	"pkg/netfilter/nft/owner.go":                         "part of what hashes in the ruleset are made of",
	"pkg/operator/doctor/daemons.go":                     "the text of a remedy",
	"pkg/operator/doctor/links.go":                       "a key",
	"pkg/operator/lint/limits.go":                        "a capability",
	"pkg/operator/netconf/netconf.go":                    "a key, which others' plugins have, too",
	"pkg/operator/node/configuration.go":                 "a capability",
	"pkg/operator/runtimes/capabilities.go":              "a capability",
	"pkg/operator/trace/lost.go":                         "a program",
	"pkg/operator/trace/table.go":                        "a family of nf_tables",
	"pkg/operator/trace/whose.go":                        "names of others' programs, and a word of nft",
	"pkg/plugin/missing.go":                              "kinds of links",
	"pkg/process/delegate/delegate.go":                   "the plugin that old leases are released by",
}

// TestFactsOfPlugins makes sure that what is true of a plugin stands in its folder, and that others ask for it: see plugin.Facts.
func TestFactsOfPlugins(t *testing.T) {
	words, paths := append(known.Plugins.Names(), "cni0"), []string{"flanneld"}
	for _, row := range known.Plugins {
		f := row.Facts(nil)
		if f.Subnets != nil {
			paths = append(paths, f.Subnets.Path)
		}
		if f.Daemon != nil {
			paths = append(paths, f.Daemon.Socket, f.Daemon.Unit)
		}
	}
	isOwn := func(text string) bool {
		return slices.Contains(words, text) || slices.ContainsFunc(paths, func(path string) bool { return strings.Contains(text, path) })
	}
	unused := map[string]bool{}
	for file := range ownWords {
		unused[file] = true
	}
	files := token.NewFileSet()
	for _, dir := range []string{"cmd", "pkg", "scripts"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			ast.Inspect(parsed, func(n ast.Node) bool {
				if _, is := n.(*ast.ImportSpec); is {
					return false
				}
				literal, is := n.(*ast.BasicLit)
				if !is || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				switch {
				case err != nil || !isOwn(text):
				case ownWords[name] != "":
					delete(unused, name)
				default:
					t.Errorf("%s: %s is a plugin's: ask its plugin.Facts", files.Position(literal.Pos()), literal.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file := range unused {
		t.Errorf("%s needs no exception any more", file)
	}
}
