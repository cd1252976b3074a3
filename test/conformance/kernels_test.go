package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var kernelsFlag = flag.String("kernels", "", "put into docs/project/kernels.md what -outcomes printed under kernels: a directory with a file for each, called as scripts/guest.sh calls it")

// kernels are those of scripts/guest.sh, and this machine's own.
var kernels = []struct{ file, title string }{
	{"qemu-5.10", "5.10, Debian 11"},
	{"qemu-6.1", "6.1, Debian 12"},
	{"uml", "6.1, user-mode-linux"},
	{"qemu-6.12", "6.12, Debian 12 backports"},
	{"here", "the machine's own"},
}

const (
	kernelsFile  = "../../docs/project/kernels.md"
	kernelsBegin = "<!-- outcomes: made by make test-kernels -->\n"
	kernelsEnd   = "<!-- end of outcomes -->\n"
	kernelRow    = "release" // of the table, which has the kernels' own names for themselves
)

// kernelsPage is what the page has between the marks.
type kernelsPage struct {
	passed  map[[2]string]string // by group and kernel: "12 of 12"
	lacking []lack
}

// lack is what a kernel can't do.
type lack struct{ group, rows, kernel, says string }

// TestKernels puts the outcomes of a run into the page. What the run has not tried, or has tried less of, stays there as it is.
func TestKernels(t *testing.T) {
	if *kernelsFlag == "" {
		return
	}
	text, err := os.ReadFile(kernelsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), kernelsBegin)
	tables, after, ends := strings.Cut(rest, kernelsEnd)
	if !begins || !ends {
		t.Fatalf("%s: the outcomes' place is between %q and %q", kernelsFile, kernelsBegin, kernelsEnd)
	}
	page := readKernelsPage(tables)
	for _, k := range kernels {
		printed, err := os.ReadFile(filepath.Join(*kernelsFlag, k.file))
		if err == nil {
			page.add(k.title, string(printed))
		} else if !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(kernelsFile, []byte(before+kernelsBegin+page.String()+kernelsEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readKernelsPage reads what String has written.
func readKernelsPage(text string) *kernelsPage {
	page := &kernelsPage{passed: map[[2]string]string{}}
	var head []string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case !strings.HasPrefix(line, "| "), strings.HasPrefix(line, "| **"):
		case cells[0] == "plugin":
			head = cells
		case len(head) == 4 && len(cells) == 4:
			page.lacking = append(page.lacking, lack{cells[0], cells[1], cells[2], cells[3]})
		case len(cells) >= len(head):
			for i := range head[1:] {
				page.passed[[2]string{cells[0], head[i+1]}] = cells[i+1]
			}
		}
	}
	return page
}

// saidOfKernel matches what a plugin said of its kernel when a row failed.
var saidOfKernel = regexp.MustCompile(`the kernel has no .*? \(\w+_test\.go:\d+\)`)

// add puts what -outcomes printed under a kernel in the place of what the page has of that kernel and those groups. A part of the rows
// that were tried before, none of which fails, changes nothing.
func (page *kernelsPage) add(kernel, printed string) {
	said := map[string]string{} // of a feature, by a plugin
	byGroup := map[string][][]string{}
	for line := range strings.Lines(printed) {
		switch part := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); part[0] {
		case kernelLine:
			page.passed[[2]string{kernelRow, kernel}] = part[1]
		case lackLine:
			said["this kernel has no "+part[1]] = part[2][max(0, strings.Index(part[2], "the kernel has no ")):]
		case outcomeLine:
			group, row, _ := strings.Cut(part[2], ": ")
			byGroup[group] = append(byGroup[group], []string{row, part[3], part[4]})
		}
	}
	for group, rows := range byGroup {
		passed, tried, failed, lacking := 0, 0, 0, map[string][]string{}
		for _, r := range rows {
			row, outcome, why := r[0], r[1], r[2]
			if outcome == "ok" {
				passed++
			} else if why == "" {
				continue // it is not about these plugins
			} else if refused := saidOfKernel.FindString(why); refused != "" {
				why = refused[:strings.LastIndex(refused, " (")]
			} else if outcome == "FAIL" {
				why = "fails: " + why
				failed++
			}
			tried++
			if outcome != "ok" {
				why = cmp.Or(said[why], why)
				lacking[why] = append(lacking[why], row)
			}
		}
		cell := [2]string{group, kernel}
		if _, before := counts(page.passed[cell]); tried < before && failed == 0 {
			continue
		}
		page.passed[cell] = fmt.Sprintf("%d of %d", passed, tried)
		page.lacking = slices.DeleteFunc(page.lacking, func(l lack) bool { return l.group == group && l.kernel == kernel })
		for why, rows := range lacking {
			what := rows[0]
			if len(rows) > 1 {
				what = fmt.Sprintf("%d rows", len(rows))
			}
			page.lacking = append(page.lacking, lack{group, what, kernel, strings.ReplaceAll(why, "|", `\|`)})
		}
	}
}

// counts reads a cell of the table: how many rows hold, of how many. A cell without any has zeros.
func counts(cell string) (passed, tried int) {
	_, _ = fmt.Sscanf(cell, "%d of %d", &passed, &tried)
	return passed, tried
}

func (page *kernelsPage) String() string {
	var out strings.Builder
	out.WriteString("\n| plugin |")
	for _, k := range kernels {
		fmt.Fprintf(&out, " %s |", k.title)
	}
	out.WriteString(" |\n|---|" + strings.Repeat("---|", len(kernels)+1) + "\n| " + kernelRow + " |")
	for _, k := range kernels {
		fmt.Fprintf(&out, " %s |", cmp.Or(page.passed[[2]string{kernelRow, k.title}], "–"))
	}
	out.WriteString(" |\n")
	all := 0
	passed, tried := make([]int, len(kernels)), make([]int, len(kernels))
	for _, g := range groups {
		fmt.Fprintf(&out, "| %s |", g.name)
		for i, k := range kernels {
			cell := cmp.Or(page.passed[[2]string{g.name, k.title}], "–")
			p, n := counts(cell)
			passed[i], tried[i] = passed[i]+p, tried[i]+n
			fmt.Fprintf(&out, " %s |", cell)
		}
		rows := 0
		for _, r := range g.rows {
			rows += len(r.each())
		}
		all += rows
		fmt.Fprintf(&out, " %d rows |\n", rows)
	}
	out.WriteString("| **all** |")
	for i := range kernels {
		fmt.Fprintf(&out, " **%d of %d** |", passed[i], tried[i])
	}
	fmt.Fprintf(&out, " **%d rows** |\n", all)
	out.WriteString("\n## What a kernel can't do\n\n| plugin | rows | kernel | why |\n|---|---|---|---|\n")
	slices.SortFunc(page.lacking, func(x, y lack) int {
		return cmp.Or(strings.Compare(x.group, y.group), strings.Compare(x.rows, y.rows), strings.Compare(x.kernel, y.kernel), strings.Compare(x.says, y.says))
	})
	for _, l := range page.lacking {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", l.group, l.rows, l.kernel, l.says)
	}
	out.WriteString("\n")
	return out.String()
}

// TestKernelsPage makes sure that a run leaves on the page what it has not tried, and what says more than the run.
func TestKernelsPage(t *testing.T) {
	const old, other = "5.10, Debian 11", "6.12, Debian 12 backports"
	page := readKernelsPage("")
	page.add(old, "kernel\t5.10.0-46\n"+
		"outcome\tlinks\tptp: the result\tok\t\n"+
		"outcome\tlinks\tptp: masquerades\tFAIL\tplugin failed: the kernel has no NAT: use another (ptp_test.go:5)\n"+
		"outcome\tlinks\tdummy: one\tn/a\tthis kernel has no dummy\noutcome\tlinks\tdummy: two\tn/a\tthis kernel has no dummy\n"+
		"outcome\tlinks\tbridge: of others\tn/a\t\n"+
		"lack\tdummy\tthe kernel has no links of type dummy\n")
	page = readKernelsPage(page.String())
	page.add(other, "outcome\tlinks\tptp: the result\tFAIL\tgot a | b (ptp_test.go:7)\n")
	page = readKernelsPage(page.String())
	page.add(old, "outcome\tlinks\tptp: the result\tok\t\noutcome\tlinks\tptp: masquerades\tok\t\n"+
		"outcome\tlinks\tdummy: two\tn/a\tthis kernel has no dummy\nlack\tdummy\tthe kernel has no links of type dummy\n")
	text := page.String()
	for _, line := range []string{
		"| release | 5.10.0-46 | – | – | – | – | |",
		"| ptp | 2 of 2 | – | – | 0 of 1 | – |",
		"| dummy | 0 of 2 | – | – | – | – |",
		"| dummy | 2 rows | 5.10, Debian 11 | the kernel has no links of type dummy |",
		"| ptp | the result | 6.12, Debian 12 backports | fails: got a \\| b (ptp_test.go:7) |",
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("no line begins with %q in\n%s", line, text)
		}
	}
	if strings.Contains(text, "NAT") {
		t.Errorf("what did not hold before is there still:\n%s", text)
	}
	page.add(old, "outcome\tlinks\tptp: the result\tFAIL\tgot c (ptp_test.go:7)\n")
	if text := page.String(); !strings.Contains(text, "\n| ptp | 0 of 1 |") || !strings.Contains(text, "fails: got c") {
		t.Errorf("one of two rows fails, and is not there:\n%s", text)
	}
}
