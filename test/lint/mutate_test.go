package lint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// inNoBase are keys that exclude others, or that have another key's place.
var inNoBase = []string{"bridge.disableContainerInterface", "host-device.hwaddr", "host-device.kernelpath", "host-device.pciBusID",
	"portmap.externalSetMarkChain"}

var options = lint.Options{Plugins: known.Plugins}

// TestMutations makes one mistake at a time in files that have none. Lint must say which, and on which line.
func TestMutations(t *testing.T) {
	t.Parallel()
	all := mutations(t)
	codes := map[string]int{}
	var table strings.Builder
	for _, m := range all {
		codes[m.code]++
		findings := findingsIn(m.file, m.text)
		if !slices.ContainsFunc(findings, func(f lint.Finding) bool {
			return f.Code == m.code && f.Line == m.line && f.Severity != finding.Info
		}) {
			t.Errorf("%s: %s: want %s on line %d (%q), got:\n%s", m.file, m.what, m.code, m.line, lineOf(m.text, m.line), list(findings))
		}
		fmt.Fprintf(&table, "%-20s line %3d  %-22s %s\n", m.file, m.line, m.code, m.what)
	}
	if testing.Verbose() {
		t.Log("\n" + table.String())
	}
	t.Logf("%d mutations, %d codes: %v", len(all), len(codes), codes)
}

// TestBase makes sure that the files have no mistake before one is made, and that they have all plugins and all keys.
func TestBase(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for name, text := range files(t, "base") {
		for _, f := range lint.Text(name, []byte(text), options) {
			if f.Severity != finding.Info {
				t.Error(f)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if m := member.FindStringSubmatch(line); m != nil && m[2] == "type" {
				seen[strings.Trim(m[3], `"`)] = true
			}
			if p := keysOf(strings.Split(text, "\n"))[i]; p.key != nil {
				seen[p.plugin+"."+p.key.Name] = true
			}
		}
	}
	for _, row := range known.Plugins {
		if !seen[row.Name] {
			t.Errorf("no base file has the plugin %s", row.Name)
		}
		for _, key := range row.Plugin.(plugin.Configured).Keys().Own {
			if full := row.Name + "." + key.Name; !seen[full] && !slices.Contains(inNoBase, full) {
				t.Errorf("no base file has %s", full)
			}
		}
	}
}

// found has the findings of each file that was linted: two tests want them.
var found sync.Map

func findingsIn(name, text string) []lint.Finding {
	if findings, ok := found.Load(name + text); ok {
		return findings.([]lint.Finding)
	}
	findings := lint.Text(name, []byte(text), options)
	found.Store(name+text, findings)
	return findings
}

// mutations are all base files with all mistakes, one in each.
func mutations(t *testing.T) (all []mutation) {
	base := files(t, "base")
	for _, name := range slices.Sorted(maps.Keys(base)) {
		all = append(all, byTable(name, base[name])...)
	}
	for _, row := range byHand {
		name := row.file + ".conflist"
		before, after, found := strings.Cut(base[name], row.old)
		if !found || strings.Contains(after, row.old) && row.old != `"plugins": [` {
			t.Errorf("%s: %q is not in it once", name, row.old)
			continue
		}
		start, rest, found := strings.Cut(row.new, "▸")
		if !found {
			t.Errorf("%s: %s: where is the mistake?", name, row.what)
		}
		before += start
		all = append(all, mutation{name, row.what, before + rest + after, 1 + strings.Count(before, "\n"), row.code})
	}
	return all
}

// files returns the files of a directory of testdata.
func files(t *testing.T, dir string) map[string]string {
	texts := map[string]string{}
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.conf*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in testdata/%s: %v", dir, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(path)] = string(text)
	}
	return texts
}

func lineOf(text string, n int) string {
	lines := strings.Split(text, "\n")
	if n > len(lines) {
		return ""
	}
	return lines[n-1]
}

func list(findings []lint.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "\t%v\n", f)
	}
	return b.String()
}
