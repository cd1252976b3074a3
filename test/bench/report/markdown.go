package report

import (
	"fmt"
	"strconv"
	"strings"
)

// Markdown returns the report. Notes, which may be empty, are a text of Markdown about what the numbers leave open.
func (r *Results) Markdown(notes string) string {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("## Marks\n\n")
	b.WriteString(r.targets())
	if notes = strings.TrimSpace(notes); notes != "" {
		b.WriteString("\n" + notes + "\n")
	}
	for _, s := range sections {
		if text := s.text(r); text != "" {
			b.WriteString("\n" + text)
		}
	}
	b.WriteString("\n## Machine and versions\n\n")
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

const head = `# Benchmarks

What a runtime waits for: ADD, CHECK and DEL through libcni. This page is made by ` + "`make bench`" + `; [results.json](results.json)
has all figures.

Each implementation has a node of its own (network and mount namespace), new for each scenario. The implementations
take turns, in an order drawn anew for each round, so that all have the same share of what else the machine does: compare
figures of one table, not those of different runs. Every measured call is on a container that is new. Times are medians and 95th
percentiles. CPU is user and system time of all processes of a call, those that go on after it included; what kernel threads do is not in it.

| | |
|---|---|
| reference | the reference plugins, built from their module |
| debian | the reference plugins of the distribution's package |
| cnibox | cnibox, an entry for each plugin, as in any conflist |
| chain | cnibox, the same plugins in one [chain](../chain.md) entry |
| no-ops | as many plugins that only hand on what they got: what libcni and starting processes cost by themselves |
| no-op | one of those, instead of the chain entry |

`

// targets returns the table of the marks.
func (r *Results) targets() string {
	var rows [][]string
	for _, t := range targets {
		rows = append(rows, t.row(r))
	}
	return table([]string{"", "at least", "aim", "measured", "reached"}, rows)
}

// Section returns the part of the report about one scenario, "" if nothing of it was measured.
func (r *Results) Section(scenario string) string {
	for _, s := range sections {
		if s.scenario == scenario {
			return s.text(r)
		}
	}
	return ""
}

func table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// number shows a value with about three digits that count.
func number(x float64) string {
	switch {
	case x >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	default:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
}

// grouped shows a case that is a number with its thousands apart, any other as it is.
func grouped(text string) string {
	if _, err := strconv.Atoi(text); err != nil || len(text) <= 3 {
		return text
	}
	return grouped(text[:len(text)-3]) + "," + text[len(text)-3:]
}
