package report

import "fmt"

// target is a mark: how two figures of one run should compare.
type target struct {
	what string
	// The medians of these are divided.
	over, under Point
	kind        kind
	least, aim  float64
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

// row shows the marks, what was measured, and how good that is.
func (t target) row(r *Results) []string {
	row := []string{t.what, fmt.Sprintf(t.kind.mark, t.least), fmt.Sprintf(t.kind.mark, t.aim)}
	quotient, measured := r.Ratio(t.over, t.under)
	if !measured {
		return append(row, none, "not measured")
	}
	reached := func(mark float64) bool { return quotient == mark || (quotient < mark) == t.kind.atMost }
	verdict := "**no**"
	if reached(t.aim) {
		verdict = "yes, the aim"
	} else if reached(t.least) {
		verdict = "yes"
	}
	return append(row, t.kind.show(quotient), verdict)
}

// targets are the marks of the project. They are those of one machine: what they compare depends on kernel and CPU too.
var targets = []target{
	vsReference("three entries (bridge+host-local, tuning, portmap): ADD", "node", "0", Cnibox, "ADD", faster, 7, 8.5),
	vsReference("… DEL", "node", "0", Cnibox, "DEL", faster, 20, 27),
	vsReference("the same as one chain entry: ADD", "node", "0", Chain, "ADD", faster, 15, 20),
	vsReference("… DEL", "node", "0", Chain, "DEL", faster, 45, 65),
	vsReference("1,000 attachments, one entry: ADD", "attachments", "1000", Chain, "ADD", faster, 40, 60),
	vsReference("… DEL", "attachments", "1000", Chain, "DEL", faster, 35, 50),
	vsReference("10 ports per pod, one entry: ADD", "ports", "10", Chain, "ADD", faster, 35, 47),
	vsReference("64 at once, three entries, throughput: ADD", "concurrency", "64", Cnibox, "ADD wall", faster, 9, 11),
	vsReference("… DEL", "concurrency", "64", Cnibox, "DEL wall", faster, 15, 19),
	vsReference("bridge+host-local at 10,000 leases: ADD", "leases", "10000", Cnibox, "ADD", faster, 30, 42),
	vsReference("… DEL", "leases", "10000", Cnibox, "DEL", faster, 40, 58),
	{"own ADD at 1,000 attachments against own at 0, one entry",
		Point{"attachments", "1000", Chain, "ADD"}, Point{"attachments", "0", Chain, "ADD"}, atMost, 3, 2},
	{"three entries against three no-op plugins: ADD",
		Point{"node", "0", Cnibox, "ADD"}, Point{"node", "0", NoOps, "ADD"}, atMost, 3.3, 2.8},
	{"… DEL", Point{"node", "0", Cnibox, "DEL"}, Point{"node", "0", NoOps, "DEL"}, atMost, 3.5, 2.8},
	vsReference("CPU, three entries: ADD", "node", "0", Cnibox, "ADD CPU", share, 8, 11),
	vsReference("… DEL", "node", "0", Cnibox, "DEL CPU", share, 7, 11),
	{"process start (VERSION) against an empty Go program",
		Point{"start", "bridge", Cnibox, "VERSION"}, Point{"start", "nothing", EmptyGo, "VERSION"}, atMost, 1.4, 1.15},
	{"peak RSS, the largest process, against the reference's bridge",
		Point{"memory", "bridge", Reference, "ADD"}, Point{"memory", "largest", Cnibox, "ADD"}, share, 2, 3},
	vsReference("all plugins on disk", "disk", "all plugins", Cnibox, "size", share, 12, 25),
	{"dual-stack ADD against own IPv4 ADD, three entries",
		Point{"dual-stack", "IPv4 and IPv6", Cnibox, "ADD"}, Point{"dual-stack", "IPv4", Cnibox, "ADD"}, atMost, 1.3, 1.1},
	vsReference("CHECK, three entries", "node", "0", Cnibox, "CHECK", faster, 4, 5),
}

// vsReference is a target against the reference plugins at the same point.
func vsReference(what, scenario, cased, plugins, metric string, k kind, least, aim float64) target {
	return target{what, Point{scenario, cased, Reference, metric}, Point{scenario, cased, plugins, metric}, k, least, aim}
}
