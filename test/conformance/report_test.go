package conformance

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// pageIntro stands above the tables of the page.
const pageIntro = `# Conformance

What CNI plugins promise, a row for each promise, and which plugins keep it. Each row is a test that drives the plugins as a runtime
does and looks from outside: at results, packets, addresses, and files that others read too. So it can be run on any plugins:

` + "```sh" + `
go test -v ./test/conformance -args -plugins /opt/cni/bin
` + "```" + `

` + "`make conformance`" + ` runs all rows on the five collections below and writes this page.

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

// writeReport writes the page of what all suites do.
func writeReport(t *testing.T, path string, suites []*suite, bySuite map[string]map[string]string) {
	t.Helper()
	var page strings.Builder
	page.WriteString(pageIntro)
	writeSummary(&page, suites, bySuite)
	writeReasons(&page, bySuite)
	for _, g := range groups {
		fmt.Fprintf(&page, "\n## %s\n\n", g.name)
		writeHead(&page, "row", suites)
		for _, all := range g.rows {
			for _, r := range all.each() {
				fmt.Fprintf(&page, "| %s |", r.name)
				for _, s := range suites {
					fmt.Fprintf(&page, " %s |", bySuite[s.name][g.name+": "+r.name])
				}
				fmt.Fprintf(&page, " %s |\n", remark(g, r))
			}
		}
	}
	if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// What begins the lines that -outcomes prints, as a guest keeps no files; what follows is apart by tabs.
const (
	kernelLine  = "kernel"  // the kernel's release
	outcomeLine = "outcome" // suite, row, what came of it, and why it did not hold
	lackLine    = "lack"    // a feature that the kernel lacks, and what a plugin says of that
)

func printKernel() {
	var system unix.Utsname
	_ = unix.Uname(&system) // can't fail
	fmt.Printf("%s\t%s\n", kernelLine, unix.ByteSliceToString(system.Release[:]))
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

func writeHead(page *strings.Builder, first string, suites []*suite) {
	fmt.Fprintf(page, "| %s |", first)
	for _, s := range suites {
		fmt.Fprintf(page, " %s |", s.name)
	}
	page.WriteString(" |\n|---|" + strings.Repeat("---|", len(suites)) + "---|\n")
}

// writeSummary writes how many rows of each group each suite passes, of those that could be tried.
func writeSummary(page *strings.Builder, suites []*suite, bySuite map[string]map[string]string) {
	page.WriteString("\n## Summary\n\nRows passed, of those that apply.\n\n")
	writeHead(page, "", suites)
	passed, tried := make([]int, len(suites)), make([]int, len(suites))
	for _, g := range groups {
		rows := 0
		fmt.Fprintf(page, "| %s |", g.name)
		for i, s := range suites {
			p, n := 0, 0
			rows = 0
			for _, all := range g.rows {
				for _, r := range all.each() {
					rows++
					switch bySuite[s.name][g.name+": "+r.name] {
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
