package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// section is how a scenario is shown.
type section struct {
	scenario, title, about string
	// grows is set where the scenario is about how the time grows.
	grows bool
	// varied is the header of the column with the case, "" to have none.
	varied  string
	columns []column
	plots   []plot
}

// column shows one metric of a row.
type column struct {
	header, metric string
	cell           func(*Results, Point) string
}

// none is the cell of what was not measured.
const none = "–"

var sections = []section{
	{scenario: "node", title: "An empty node", about: `bridge (isGateway, ipMasq, host-local), tuning with one sysctl, portmap with one port.`,
		columns: perVerb()},
	{scenario: "attachments", grows: true, title: "A node that fills", about: `The same chain, with attachments (one port each) on the node already. cnibox and chain are on one node.`,
		varied: "attachments", columns: perVerb(),
		plots: []plot{
			{"attachments-add.svg", "ADD against attachments on the node", "ADD", "attachments already there", "ms", false},
			{"attachments-del.svg", "DEL against attachments on the node", "DEL", "attachments already there", "ms", false},
		}},
	{scenario: "ports", grows: true, title: "Ports per pod", about: "The same chain, with more ports or none.", varied: "ports", columns: perVerb()},
	{scenario: "concurrency", grows: true, title: "Many at once",
		about: `The same chain, a batch of pods, so many calls of the runtime at a time. "Each" is how long one call took, "per operation" the time for
all of them divided by their number; throughput compares that.`,
		varied: "at once", columns: perBatch(),
		plots: []plot{
			{"concurrency-add.svg", "Latency of an ADD against ADDs at once", "ADD", "calls at once", "ms", true},
			{"concurrency-del.svg", "Latency of a DEL against DELs at once", "DEL", "calls at once", "ms", true},
		}},
	{scenario: "leases", grows: true, title: "Leases on disk", about: "bridge with host-local alone, without masquerading, with leases in the network's directory already, at last all of a /24 but one.",
		varied: "leases", columns: perVerb()},
	{scenario: "dual-stack", title: "Dual-stack", about: "The chain of the empty node with one address, and with two.", varied: "addresses", columns: perVerb()},
	{scenario: "plugins", title: "Every plugin alone", about: "One process each; a chained plugin is timed as one entry of a network that has what it needs before it.",
		varied: "plugin", columns: perVerb()},
	{scenario: "start", title: "Process start", about: `A program started by another small one, until it has ended: the plugins are asked for their VERSION.
The peak of a program that is smaller than the one that starts it can't be told: it shows that one's.`,
		varied: "program", columns: []column{
			{"ms p50 / p95", "VERSION", latency},
			{"times the empty Go program", "VERSION", startRatio},
			{"peak RSS, MiB", "RSS", median(1 << 20)},
		}},
	{scenario: "status", title: "STATUS", about: `STATUS of bridge (ipMasq, host-local), tuning, portmap, firewall and bandwidth, through libcni. Some runtimes ask for it every few
seconds. VERSION of the same plugins only starts them: what STATUS takes besides is its own.`,
		varied: "node", columns: []column{
			{"STATUS ms p50 / p95", "STATUS", latency}, {"faster", "STATUS", times}, {"CPU ms", "STATUS CPU", median(1)},
			{"VERSION ms p50 / p95", "VERSION", latency}, {"besides, ms p50 / p95", "beside", latency},
		}},
	{scenario: "memory", title: "Memory", about: "Peak resident set of the largest process of a call, its children included.",
		varied: "plugin", columns: []column{{"ADD, MiB", "ADD", median(1 << 20)}, {"DEL, MiB", "DEL", median(1 << 20)}}},
	{scenario: "disk", title: "Disk", about: "All plugins of an implementation, stripped, on this architecture. A file with several names counts once.",
		columns: []column{{"plugins", "plugins", count}, {"files", "files", count}, {"size, MB", "size", median(1e6)}}},
	{scenario: "gc", grows: true, title: "GC", about: `GC of one plugin with so many attachments of its network on the node, all of them valid: alone, and beside 16 callers that attach and
detach pods of their own all the time. The last columns are of a GC that removes all attachments.`,
		varied: "attachments", columns: []column{
			{"alone, ms p50 / p95", "alone", latency}, {"failed", "alone failed", failures},
			{"beside callers, ms p50 / p95", "beside", latency}, {"failed", "beside failed", failures},
			{"all stale, ms", "all stale", median(1)}, {"failed", "all stale failed", failures},
		}},
	{scenario: "counts", title: "What an operation does", about: `Counted with strace over all processes of one operation of the chain of the empty node, none of them the first on its node.
Processes are those started beside the plugins' own; sends are messages to netlink sockets.`,
		columns: perCount()},
}

// perVerb are the columns of a scenario that measures single calls.
func perVerb() (columns []column) {
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		columns = append(columns, column{verb + " ms p50 / p95", verb, latency}, column{"faster", verb, times}, column{"CPU ms", verb + " CPU", median(1)})
	}
	return columns
}

// perBatch are the columns of a scenario that calls many times at once.
func perBatch() (columns []column) {
	for _, verb := range []string{"ADD", "DEL"} {
		columns = append(columns, column{verb + " each, ms p50 / p95", verb, latency}, column{"per operation, ms", verb + " wall", median(1)},
			column{"throughput", verb + " wall", times}, column{"failed", verb + " failed", failures})
	}
	return columns
}

// perCount are the columns of a scenario that counts.
func perCount() (columns []column) {
	for _, verb := range []string{"ADD", "DEL"} {
		columns = append(columns, column{verb + ": execs", verb + " execs", count}, column{"processes", verb + " processes", count},
			column{"netlink sends", verb + " sends", count}, column{"system calls", verb + " calls", count})
	}
	return columns
}

// show returns the cells that show a figure in a format.
func show(format func(Figure) string) func(*Results, Point) string {
	return func(r *Results, p Point) string {
		figure, measured := r.Find(p)
		if !measured {
			return none
		}
		return format(figure)
	}
}

var (
	latency = show(func(f Figure) string { return number(f.Median) + " / " + number(f.P95) })
	count   = show(func(f Figure) string { return fmt.Sprintf("%.0f", f.Median) })
)

// median shows medians in a larger unit.
func median(unit float64) func(*Results, Point) string {
	return show(func(f Figure) string { return number(f.Median / unit) })
}

// failures shows how many calls failed, nothing when none did.
func failures(r *Results, p Point) string {
	if figure, _ := r.Find(p); figure.Median != 0 {
		return fmt.Sprintf("%.0f", figure.Median)
	}
	return ""
}

// times shows how many times as fast as the reference plugins.
func times(r *Results, p Point) string {
	reference := p
	reference.Plugins = Reference
	quotient, measured := r.Ratio(reference, p)
	if !measured {
		return none
	}
	return faster(quotient)
}

// startRatio shows a start as a multiple of the empty Go program's.
func startRatio(r *Results, p Point) string {
	quotient, measured := r.Ratio(p, Point{"start", "nothing", EmptyGo, "VERSION"})
	if !measured {
		return none
	}
	return fmt.Sprintf("%.2fx", quotient)
}

// Section returns the part of the report about one scenario, "" if nothing of it was measured.
func (r *Results) Section(scenario string) string {
	all := slices.Concat(sections, many)
	s := all[slices.IndexFunc(all, func(s section) bool { return s.scenario == scenario })]
	var header []string
	if s.varied != "" {
		header = append(header, s.varied)
	}
	header = append(header, "")
	for _, c := range s.columns {
		header = append(header, c.header)
	}
	var rows [][]string
	seen := map[Point]bool{}
	for _, f := range r.Figures {
		p := f.Point
		p.Metric = ""
		if seen[p] || p.Scenario != scenario {
			continue
		}
		seen[p] = true
		var row []string
		if s.varied != "" {
			row = append(row, grouped(p.Case))
		}
		row = append(row, p.Plugins)
		for _, c := range s.columns {
			p.Metric = c.metric
			row = append(row, c.cell(r, p))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return ""
	}
	text := fmt.Sprintf("### %s\n\n%s\n\n", s.title, s.about)
	for i, p := range s.plots {
		text += fmt.Sprintf("![%s](%s)\n", p.title, p.file)
		if i == len(s.plots)-1 {
			text += "\n"
		}
	}
	return text + table(header, rows)
}

// markdown returns the report. Notes, which may be empty, are a text of Markdown about how the time grows that the scenarios lack.
func (r *Results) markdown(notes string) string {
	var rows [][]string
	for _, c := range comparisons {
		rows = append(rows, c.row(r))
	}
	text := head + table([]string{"ms, reference → cnibox", "ADD", "DEL"}, rows) + "\n" + implementations
	text += r.sections(false) + "\n## How it grows\n" + r.sections(true)
	if notes = strings.TrimSpace(notes); notes != "" {
		text += "\n" + notes + "\n"
	}
	text += measured + "\n"
	for _, f := range r.Facts {
		text += fmt.Sprintf("- %s: %s\n", f.Name, f.Value)
	}
	return text + repeat
}

// sections returns what was measured of the scenarios that are about growth, or of the others.
func (r *Results) sections(grows bool) (text string) {
	for _, s := range sections {
		if section := r.Section(s.scenario); section != "" && s.grows == grows {
			text += "\n" + section
		}
	}
	return text
}

const head = `# Benchmarks

The time that a runtime waits: for ADD, CHECK and DEL through libcni, beside the reference plugins on the same machine.
[results.json](results.json) has all figures. Thousands of attachments on a node, and 250 calls at once, have [their own page](many.md).

## How fast

`

const implementations = `The tables below compare:

| | |
|---|---|
| reference | the reference plugins, built from their module |
| debian | the reference plugins of the distribution's package |
| cnibox | cnibox, an entry for each plugin, as in any conflist |
| chain | cnibox, the same plugins in one [chain](../../plugins/chain.md) entry |
| no-ops | as many plugins that only hand on what they got: what libcni and starting processes cost by themselves |
| no-op | one of those, instead of the chain entry |

"Faster" is against the reference plugins of the same table. Where a plugin does next to nothing, most of its time is the start of its process.
`

const measured = `
## How it was measured

Each implementation has a node of its own (network and mount namespace), new for each scenario. The implementations take turns, in an
order drawn anew for each round, so that all have the same share of what else the machine does. Every measured call is on a container
that is new. Times are medians and 95th percentiles. CPU is user and system time of all processes of a call, those that go on after it
included; what kernel threads do is not in it.

Compare figures of one table, not those of different runs: this machine starts programs at some times half as fast again as at others,
which the rows of the no-op show. How many times as fast an ADD is has differed by up to a tenth from run to run, a DEL and 64 at once by a
fifth, and 10,000 leases, where the reference reads as many files, by a third.
`

const repeat = `
## How to repeat it

` + "```sh" + `
make bench        # all of this page, a quarter of an hour on a quiet machine
make bench-gc     # GC on a large node, ten minutes
make bench-many   # the page of many attachments, in parts of some minutes
make bench-short  # a little of everything, to see that it works
` + "```" + `

It needs root, and changes nothing of the machine's own network.
`

func table(header []string, rows [][]string) string {
	text := "| " + strings.Join(header, " | ") + " |\n" + strings.Repeat("|---", len(header)) + "|\n"
	for _, row := range rows {
		text += "| " + strings.Join(row, " | ") + " |\n"
	}
	return text
}

// number shows a value with about three digits that count.
func number(x float64) string {
	digits := 2
	switch {
	case x >= 99.95:
		digits = 0
	case x >= 9.995:
		digits = 1
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// grouped shows a case that is a number with its thousands apart, any other as it is.
func grouped(text string) string {
	if _, err := strconv.Atoi(text); err != nil || len(text) <= 3 {
		return text
	}
	return grouped(text[:len(text)-3]) + "," + text[len(text)-3:]
}
