package report

import (
	"fmt"
	"slices"
	"strings"
)

// section is how a scenario is shown.
type section struct {
	scenario, title, about string
	// varied is the header of the column with the case, "" to have none.
	varied  string
	columns []column
	plots   []plotted
}

// column shows one thing of a row: a point that lacks its metric.
type column struct {
	header string
	cell   func(*Results, Point) string
}

// none is the cell of what was not measured.
const none = "–"

var sections = []section{
	{scenario: "node", title: "An empty node", about: `bridge (isGateway, ipMasq, host-local), tuning with one sysctl, portmap with one port.
"Faster" is against the reference plugins in the same run.`,
		columns: perVerb()},
	{scenario: "attachments", title: "A node that fills", about: `The same chain, with attachments (one port each) on the node already. cnibox and chain are on one node.`,
		varied: "attachments", columns: perVerb(),
		plots: []plotted{
			{"attachments-add.svg", "ADD against attachments on the node", "ADD", "attachments already there", "ms", false},
			{"attachments-del.svg", "DEL against attachments on the node", "DEL", "attachments already there", "ms", false},
		}},
	{scenario: "ports", title: "Ports per pod", about: "The same chain, with more ports or none.", varied: "ports", columns: perVerb()},
	{scenario: "concurrency", title: "Many at once",
		about: `The same chain, a batch of pods, so many calls of the runtime at a time. "Each" is how long one call took, "per operation" the time for
all of them divided by their number; throughput compares that.`,
		varied: "at once", columns: slices.Concat(perBatch("ADD"), perBatch("DEL")),
		plots: []plotted{
			{"concurrency-add.svg", "Latency of an ADD against ADDs at once", "ADD", "calls at once", "ms", true},
			{"concurrency-del.svg", "Latency of a DEL against DELs at once", "DEL", "calls at once", "ms", true},
		}},
	{scenario: "leases", title: "Leases on disk", about: "bridge with host-local alone, without masquerading, with leases in the network's directory already.",
		varied: "leases", columns: perVerb()},
	{scenario: "dual-stack", title: "Dual-stack", about: "The chain of the empty node with one address, and with two.", varied: "addresses", columns: perVerb()},
	{scenario: "plugins", title: "Every plugin alone", about: "One process each; a chained plugin is timed as one entry of a network that has what it needs before it.",
		varied: "plugin", columns: perVerb()},
	{scenario: "start", title: "Process start", about: `A program started by another small one, until it has ended: the plugins are asked for their VERSION.
The peak of a program that is smaller than the one that starts it can't be told: it shows that one's.`,
		varied: "program", columns: []column{
			{"ms p50 / p95", latency("VERSION")},
			{"times the empty Go program", startRatio},
			{"peak RSS, MiB", mebibytes("RSS")},
		}},
	{scenario: "memory", title: "Memory", about: "Peak resident set of the largest process of a call, its children included.",
		varied: "plugin", columns: []column{{"ADD, MiB", mebibytes("ADD")}, {"DEL, MiB", mebibytes("DEL")}}},
	{scenario: "disk", title: "Disk", about: "All plugins of an implementation, stripped, on this architecture. A file with several names counts once.",
		columns: []column{{"plugins", median0("plugins")}, {"files", median0("files")}, {"size, MB", megabytes("size")}}},
	{scenario: "counts", title: "What an operation does", about: `Counted with strace over all processes of one operation of the chain of the empty node, none of them the first on its node.
Processes are those started beside the plugins' own; sends are messages to netlink sockets.`,
		columns: []column{
			{"ADD: execs", median0("ADD execs")}, {"processes", median0("ADD processes")}, {"netlink sends", median0("ADD sends")}, {"system calls", median0("ADD calls")},
			{"DEL: execs", median0("DEL execs")}, {"processes", median0("DEL processes")}, {"netlink sends", median0("DEL sends")}, {"system calls", median0("DEL calls")},
		}},
}

// perVerb are the columns of a scenario that measures single calls.
func perVerb() []column {
	var columns []column
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		columns = append(columns,
			column{verb + " ms p50 / p95", latency(verb)},
			column{"faster", times(verb)},
			column{"CPU ms", milliseconds(verb + " CPU")})
	}
	return columns
}

// perBatch are the columns of a verb that is called many times at once.
func perBatch(verb string) []column {
	return []column{
		{verb + " each, ms p50 / p95", latency(verb)},
		{"per operation, ms", milliseconds(verb + " wall")},
		{"throughput", times(verb + " wall")},
		{"failed", failures(verb + " failed")},
	}
}

// text returns the section in Markdown, or "" when nothing of it was measured.
func (s section) text(r *Results) string {
	rows := r.rows(s.scenario)
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.title, s.about)
	for _, p := range s.plots {
		fmt.Fprintf(&b, "![%s](%s)\n", p.title, p.file)
	}
	if len(s.plots) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(s.table(r, rows))
	return b.String()
}

func (s section) table(r *Results, points []Point) string {
	var header []string
	if s.varied != "" {
		header = append(header, s.varied)
	}
	header = append(header, "")
	for _, c := range s.columns {
		header = append(header, c.header)
	}
	var rows [][]string
	for _, p := range points {
		var row []string
		if s.varied != "" {
			row = append(row, grouped(p.Case))
		}
		row = append(row, p.Plugins)
		for _, c := range s.columns {
			row = append(row, c.cell(r, p))
		}
		rows = append(rows, row)
	}
	return table(header, rows)
}
