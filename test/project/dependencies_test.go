// Package project tests what the project says of itself: its dependencies with their licences, and its pages for contributors.
package project

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/scripts/licences"
)

var update = flag.Bool("update", false, "write docs/project/dependencies.md, but for why a module is there")

const (
	page     = "../../docs/project/dependencies.md"
	tableTop = "| module | in | licence | why |\n|---|---|---|---|\n"
)

// allowed are the licences that a module of a binary may have. They let anybody pass on the binary, with their notices.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// TestDependencies compares the page of dependencies with what the binaries are made of, and makes sure that each module may be passed on.
func TestDependencies(t *testing.T) {
	modules, err := licences.Linked("../..", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range modules {
		if len(m.Licences) == 0 {
			t.Errorf("%s has no licence file", name)
		}
		for _, l := range m.Licences {
			if !slices.Contains(allowed, l) {
				t.Errorf("%s: licence %s is none of %s", name, l, allowed)
			}
		}
	}
	is, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(is), tableTop)
	if !ok {
		t.Fatalf("%s has no table that begins with\n%s", page, tableTop)
	}
	rows, foot, _ := strings.Cut(rest, "\n\n")
	reasons := map[string]string{}
	for row := range strings.Lines(rows) {
		if cells := strings.Split(row, "|"); len(cells) > 4 {
			reasons[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[4])
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if reasons[name] == "" {
			t.Errorf("%s does not say why %s is there", page, name)
		}
		m := modules[name]
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.Join(m.Programs, ", "), strings.Join(m.Licences, ", "), reasons[name]))
	}
	want := head + tableTop + strings.Join(lines, "\n") + "\n\n" + foot
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(string(is), "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("%s is not what the binaries are made of: run make dependencies, and say why a new module is there\n-page +now:\n%s", page, diff)
	}
}
