package report

import "fmt"

// target is a mark: how two figures of one run should compare.
type target struct {
	what string
	// The medians of these are divided.
	over, under Point
	kind        kind
	least       float64
}

// kind is how a quotient is meant.
type kind struct {
	mark   string // format of a mark
	show   func(quotient float64) string
	atMost bool // less is better
}

var (
	faster = kind{mark: "%gx", show: func(q float64) string { return number(q) + "x" }}
	share  = kind{mark: "≤ 1/%g", show: func(q float64) string { return "1/" + number(q) }}
	atMost = kind{mark: "≤ %gx", show: func(q float64) string { return fmt.Sprintf("%.2fx", q) }, atMost: true}
)

// row shows the mark, what was measured, and whether that reaches it.
func (t target) row(r *Results) []string {
	row := []string{t.what, fmt.Sprintf(t.kind.mark, t.least)}
	quotient, measured := r.Ratio(t.over, t.under)
	if !measured {
		return append(row, none, "not measured")
	}
	verdict := "**no**"
	if quotient == t.least || (quotient < t.least) == t.kind.atMost {
		verdict = "yes"
	}
	return append(row, t.kind.show(quotient), verdict)
}

// targets are the marks of the project. They are those of one machine: what they compare depends on kernel and CPU too.
var targets = []target{
	vsReference("three entries (bridge+host-local, tuning, portmap): ADD", "node", "0", Cnibox, "ADD", faster, 6.2),
	vsReference("… DEL", "node", "0", Cnibox, "DEL", faster, 15),
	vsReference("the same as one chain entry: ADD", "node", "0", Chain, "ADD", faster, 12),
	vsReference("… DEL", "node", "0", Chain, "DEL", faster, 28),
	vsReference("1,000 attachments, one entry: ADD", "attachments", "1000", Chain, "ADD", faster, 32),
	vsReference("… DEL", "attachments", "1000", Chain, "DEL", faster, 25),
	vsReference("10 ports per pod, one entry: ADD", "ports", "10", Chain, "ADD", faster, 22),
	vsReference("64 at once, three entries, throughput: ADD", "concurrency", "64", Cnibox, "ADD wall", faster, 6.5),
	vsReference("… DEL", "concurrency", "64", Cnibox, "DEL wall", faster, 12),
	vsReference("bridge+host-local at 10,000 leases: ADD", "leases", "10000", Cnibox, "ADD", faster, 22),
	vsReference("… DEL", "leases", "10000", Cnibox, "DEL", faster, 26),
	{"own ADD at 1,000 attachments against own at 0, one entry",
		Point{"attachments", "1000", Chain, "ADD"}, Point{"attachments", "0", Chain, "ADD"}, atMost, 3},
	{"process start (VERSION) against an empty Go program",
		Point{"start", "bridge", Cnibox, "VERSION"}, Point{"start", "nothing", EmptyGo, "VERSION"}, atMost, 1.35},
	vsReference("all plugins on disk", "disk", "all plugins", Cnibox, "size", share, 9),
}

// vsReference is a target against the reference plugins at the same point.
func vsReference(what, scenario, cased, plugins, metric string, k kind, least float64) target {
	return target{what, Point{scenario, cased, Reference, metric}, Point{scenario, cased, plugins, metric}, k, least}
}
