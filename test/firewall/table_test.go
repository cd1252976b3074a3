package firewall

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// table is what the cells of the matrix came to.
type table struct {
	sync.Mutex
	rows, columns []string // in the order in which they are to be printed
	cells         map[[2]string]string
}

func newTable() *table { return &table{cells: map[[2]string]string{}} }

// set notes what a cell came to.
func (m *table) set(row, column, verdict string) {
	m.Lock()
	defer m.Unlock()
	m.cells[[2]string{row, column}] = verdict
}

// cell runs a subtest that is a cell. What it returns is why there is nothing
// to promise, or "".
func (m *table) cell(t *testing.T, row string, b backend, p protocol, f family, run func(t *testing.T) string) {
	column := column(b, p, f)
	if !p.available(t) {
		m.set(row, column, "n/a (no "+p.name+" in this kernel)")
		return
	}
	t.Run(row+"/"+p.name+"/"+f.name, func(t *testing.T) {
		verdict := "FAILED"
		defer func() { m.set(row, column, verdict) }()
		why := run(t)
		switch {
		case t.Failed():
		case why == "":
			verdict = "ok"
		default:
			verdict = "n/a (" + why + ")"
		}
	})
}

// markdown returns the table. A cell that has not been run says so.
func (m *table) markdown() string {
	m.Lock()
	defer m.Unlock()
	var out strings.Builder
	line := func(first string, rest []string) {
		fmt.Fprintf(&out, "| %s | %s |\n", first, strings.Join(rest, " | "))
	}
	line("path", m.columns)
	line("---", slices.Repeat([]string{"---"}, len(m.columns)))
	for _, row := range m.rows {
		var cells []string
		for _, column := range m.columns {
			verdict, run := m.cells[[2]string{row, column}]
			if !run {
				verdict = "not run"
			}
			cells = append(cells, verdict)
		}
		line(row, cells)
	}
	return out.String()
}

// publish prints the table.
func (m *table) publish(t *testing.T) {
	text := m.markdown()
	t.Logf("\n%s", text)
	if file := os.Getenv("FIREWALL_MATRIX"); file != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}
