package runtimes

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// page is docs/project/runtimes.md, when the run is to write its tables.
var page = flag.String("page", "", "write what came of each scenario into this page")

const (
	pageBegin = "<!-- outcomes: made by make e2e-runtimes -->\n"
	pageEnd   = "<!-- end of outcomes -->\n"
)

// outcomes are by scenario and column.
type outcomes map[[2]string]string

// writePage puts the outcomes of this run into the page. A run of some of the tests leaves the cells of others as they are.
func writePage(path, outcomesFile string, partial bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), pageBegin)
	tables, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return fmt.Errorf("%s: no place for the outcomes: it is between %q and %q", path, pageBegin, pageEnd)
	}
	all := outcomes{}
	if partial {
		all.readTable(tables)
	}
	lines, err := os.ReadFile(outcomesFile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(lines)) {
		part := strings.Split(strings.TrimSpace(line), "\t")
		all[[2]string{part[0], part[1]}] = part[2]
	}
	return os.WriteFile(path, []byte(before+pageBegin+all.tables()+pageEnd+after), 0o644)
}

// readTable reads what tables has written.
func (o outcomes) readTable(text string) {
	var head []string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		switch name := strings.TrimPrefix(cells[0], "| "); {
		case name == "scenario":
			head = cells
		case len(head) > 0 && len(cells) == len(head):
			for i, cell := range cells[1:] {
				o[[2]string{name, strings.TrimSuffix(head[i+1], " |")}] = strings.TrimSuffix(cell, " |")
			}
		}
	}
}

// tables are what happens in each scenario, and what came of it with each runtime.
func (o outcomes) tables() string {
	var out strings.Builder
	out.WriteString("\n| scenario | " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, s := range scenarios {
		out.WriteString("| " + s.name)
		for _, column := range columns {
			cell := o[[2]string{s.name, column}]
			if cell == "" {
				cell = "–"
			}
			out.WriteString(" | " + cell)
		}
		out.WriteString(" |\n")
	}
	out.WriteString("\n## The scenarios\n\n| | |\n|---|---|\n")
	for _, s := range scenarios {
		fmt.Fprintf(&out, "| %s | %s |\n", s.name, s.what)
	}
	out.WriteString("\n")
	return out.String()
}
