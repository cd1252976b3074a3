package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// pageIntro stands above the tables of the page.
const pageIntro = `# Conformance

What CNI plugins promise, a row for each promise, and which plugins keep it. Each row is a test that drives the plugins as a runtime
does and looks from outside: at results, packets, addresses, and files that others read too. So it can be run on any plugins, by
[one program](cni-conformance.md) that has all rows:

` + "```sh" + `
cni-conformance --plugins /opt/cni/bin
` + "```" + `

` + "`make conformance`" + ` runs all rows on the five collections below, and writes this page and those that it leads to.

| | |
|---|---|
| links | cnibox, each plugin a link to one binary |
| copies | cnibox, each plugin a copy of it |
| chain | cnibox, each list of plugins as one entry of type ` + "`chain`" + ` |
| reference | the reference plugins, 1.9.1 |
| debian | the reference plugins as Debian 12 packages them, 1.1.1 |

A row that says "our choice" is about what neither the CNI specification nor the reference settles. Rows that say what they need in the
kernel were tried in a guest where this machine's kernel lacks it.
`

// pageSuites are the collections of the pages, and ownSuites those that are cnibox.
var (
	pageSuites = []string{"links", "copies", "chain", "reference", "debian"}
	ownSuites  = pageSuites[:3]
)

// notYet is the outcome of a row that nobody has tried for the page.
const notYet = "not yet"

// updateReport writes the pages of what all suites do: a summary at path, and a page for each group in the folder of that name. A row that was not
// tried keeps the outcome that its page has.
func updateReport(t *testing.T, path string, suites []string, bySuite map[string]map[string]string) {
	t.Helper()
	all := map[string]map[string]string{}
	for _, g := range groups {
		before, err := os.ReadFile(pageOf(path, g))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		merge(all, readPage(g, string(before)))
	}
	merge(all, bySuite)
	err := os.WriteFile(path, []byte(summary(suites, all)), 0o644)
	for _, g := range groups {
		err = errors.Join(err, os.WriteFile(pageOf(path, g), []byte(page(g, suites, all)), 0o644))
	}
	if err != nil {
		t.Error(err)
	}
}

// pageOf is where the page of a group is, with the summary at path.
func pageOf(path string, g group) string {
	return filepath.Join(strings.TrimSuffix(path, ".md"), g.name+".md")
}

// merge returns the outcomes of both, the later ones where both have a row.
func merge(before, later map[string]map[string]string) map[string]map[string]string {
	for suite, rows := range later {
		if before[suite] == nil {
			before[suite] = map[string]string{}
		}
		maps.Copy(before[suite], rows)
	}
	return before
}

// readPage reads the outcomes that page has written, by suite and row.
func readPage(g group, page string) map[string]map[string]string {
	bySuite := map[string]map[string]string{}
	var head []string
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		switch {
		case !strings.HasPrefix(line, "| "):
		case cells[0] == "row":
			head = cells[1:]
		case len(cells) > len(head):
			for i, suite := range head {
				merge(bySuite, map[string]map[string]string{suite: {g.name + ": " + cells[0]: cells[i+1]}})
			}
		}
	}
	return bySuite
}

// summary says what suites do, and leads to the groups' pages.
func summary(suites []string, bySuite map[string]map[string]string) string {
	var text strings.Builder
	text.WriteString(pageIntro)
	writeSummary(&text, suites, bySuite)
	writeReasons(&text, bySuite)
	return text.String()
}

// page has the rows of a group: first those that cnibox fails, then those that others fail.
func page(g group, suites []string, bySuite map[string]map[string]string) string {
	var rows []row
	for _, all := range g.rows {
		rows = append(rows, all.each()...)
	}
	outcome := func(suite string, r row) string { return cmp.Or(bySuite[suite][g.name+": "+r.name], notYet) }
	rank := func(r row) int {
		switch fails := func(suite string) bool { return outcome(suite, r) == "FAIL" }; {
		case slices.ContainsFunc(ownSuites, fails):
			return 0
		case slices.ContainsFunc(suites, fails):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(rows, func(a, b row) int { return rank(a) - rank(b) })
	var text strings.Builder
	fmt.Fprintf(&text, "# Conformance: %s\n\nEach row is a promise; those come first that some plugins do not keep. [Conformance](../conformance.md) says what the columns are.\n\n", g.name)
	writeHead(&text, "row", suites)
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s |", r.name)
		for _, s := range suites {
			fmt.Fprintf(&text, " %s |", outcome(s, r))
		}
		fmt.Fprintf(&text, " %s |\n", remark(g, r))
	}
	return text.String()
}

// TestReport makes sure that a page keeps what it has of rows that were not tried, and begins with the failures.
func TestReport(t *testing.T) {
	first, fails := bridgeRows.rows[0].name, bridgeRows.rows[1].name
	text := page(bridgeRows, pageSuites, map[string]map[string]string{"links": {"bridge: " + first: "ok", "bridge: nobody promises this": "ok"}, "reference": {"bridge: " + first: "FAIL"}})
	text = page(bridgeRows, pageSuites, merge(readPage(bridgeRows, text), map[string]map[string]string{"chain": {"bridge: " + fails: "FAIL"}}))
	want := "---|\n| " + fails + " | not yet | not yet | FAIL | not yet | not yet |"
	kept := "\n| " + first + " | ok | not yet | not yet | FAIL | not yet |"
	if !strings.Contains(text, want) || strings.Index(text, kept) < strings.Index(text, want) {
		t.Errorf("it does not begin with %q, and %q after that:\n%.2000s", want, kept, text)
	}
	if strings.Contains(text, "nobody promises this") {
		t.Error("a row that is no more is on the page")
	}
}

// What begins the lines that -outcomes prints, as a guest keeps no files; what follows is apart by tabs.
const (
	kernelLine  = "kernel"  // the kernel's release
	outcomeLine = "outcome" // suite, row, what came of it, and why it did not hold
	lackLine    = "lack"    // a feature that the kernel lacks, and what a plugin says of that
)

func printKernel() { fmt.Printf("%s\t%s\n", kernelLine, kernelRelease()) }

func kernelRelease() string {
	var system unix.Utsname
	_ = unix.Uname(&system) // can't fail
	return unix.ByteSliceToString(system.Release[:])
}

func printOutcome(suite, row string, o outcome) {
	why := strings.Join(strings.Fields(o.skipped+strings.Join(o.failures, " ")), " ")
	fmt.Printf("%s\t%s\t%s\t%s\t%s\n", outcomeLine, suite, row, o, why)
}

func printLack(feature netlab.Feature, err error) {
	_, text, _ := strings.Cut(err.Error(), "failed (add): ")
	fmt.Printf("%s\t%s\t%s\n", lackLine, feature.Name, text)
}

// readOutcomes adds what printOutcomes has printed elsewhere of rows that could not be tried here. An empty path adds nothing.
func readOutcomes(t *testing.T, path string, bySuite map[string]map[string]string) {
	t.Helper()
	if path == "" {
		return
	}
	printed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(printed)) {
		part := strings.Split(line, "\t")
		if len(part) == 5 && part[0] == outcomeLine && bySuite[part[1]][part[2]] == notTried {
			bySuite[part[1]][part[2]] = part[3]
		}
	}
}

// remark is what the marks of a row and its group say.
func remark(g group, r row) string {
	var remarks []string
	for _, feature := range g.needed(r) {
		remarks = append(remarks, "needs "+feature.Name+" in the kernel")
	}
	if r.choice {
		remarks = append(remarks, "our choice")
	}
	if r.differs != "" {
		remarks = append(remarks, "reference: "+r.differs)
	}
	if r.known != "" {
		remarks = append(remarks, "known defect: "+r.known)
	}
	return strings.Join(remarks, "; ")
}

func writeHead(page *strings.Builder, first string, suites []string) {
	fmt.Fprintf(page, "| %s |", first)
	for _, s := range suites {
		fmt.Fprintf(page, " %s |", s)
	}
	page.WriteString(" |\n|---|" + strings.Repeat("---|", len(suites)) + "---|\n")
}

// writeSummary writes how many rows of each group each suite passes, of those that could be tried.
func writeSummary(page *strings.Builder, suites []string, bySuite map[string]map[string]string) {
	page.WriteString("\n## Summary\n\nRows passed, of those that apply. Each line leads to its rows.\n\n")
	writeHead(page, "", suites)
	passed, tried := make([]int, len(suites)), make([]int, len(suites))
	for _, g := range groups {
		rows := 0
		fmt.Fprintf(page, "| [%s](conformance/%[1]s.md) |", g.name)
		for i, s := range suites {
			p, n := 0, 0
			rows = 0
			for _, all := range g.rows {
				for _, r := range all.each() {
					rows++
					switch bySuite[s][g.name+": "+r.name] {
					case "ok":
						p, n = p+1, n+1
					case "FAIL":
						n++
					}
				}
			}
			if n == 0 { // none applies, or none could be tried
				page.WriteString(" – |")
			} else {
				fmt.Fprintf(page, " %d of %d |", p, n)
			}
			passed[i], tried[i] = passed[i]+p, tried[i]+n
		}
		fmt.Fprintf(page, " %d rows |\n", rows)
	}
	page.WriteString("| **all** |")
	for i := range suites {
		fmt.Fprintf(page, " **%d of %d** |", passed[i], tried[i])
	}
	page.WriteString(" |\n")
}

// writeReasons writes why the reference fails rows, and how many for each reason.
func writeReasons(page *strings.Builder, bySuite map[string]map[string]string) {
	count := map[string]int{}
	for _, g := range groups {
		for _, all := range g.rows {
			for _, r := range all.each() {
				if r.differs != "" && bySuite["reference"][g.name+": "+r.name] == "FAIL" {
					count[r.differs]++
				}
			}
		}
	}
	if len(count) == 0 {
		return
	}
	page.WriteString("\n## Where the reference differs, and we mean it\n\n| rows | |\n|---|---|\n")
	reasons := make([]string, 0, len(count))
	for reason := range count {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	})
	for _, reason := range reasons {
		fmt.Fprintf(page, "| %d | %s |\n", count[reason], reason)
	}
}
