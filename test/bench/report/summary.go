package report

import "fmt"

// comparison is one line of the summary: how long the reference plugins take for something, and how long ours.
type comparison struct {
	what, scenario, cased, plugins string
	// add and del are the metrics of the two verbs.
	add, del string
}

var comparisons = []comparison{
	{"three plugins: bridge with host-local, tuning, portmap", "node", "0", Cnibox, "ADD", "DEL"},
	{"the same three as one chain entry", "node", "0", Chain, "ADD", "DEL"},
	{"… with 1,000 attachments on the node", "attachments", "1000", Chain, "ADD", "DEL"},
	{"… with 10 ports per pod", "ports", "10", Chain, "ADD", "DEL"},
	{"… with IPv4 and IPv6", "dual-stack", "IPv4 and IPv6", Chain, "ADD", "DEL"},
	{"… 64 at once, per operation", "concurrency", "64", Chain, "ADD wall", "DEL wall"},
	{"bridge with host-local, 10,000 leases on disk", "leases", "10000", Cnibox, "ADD", "DEL"},
}

// row shows the line for both verbs.
func (c comparison) row(r *Results) []string {
	return []string{c.what, c.compare(r, c.add), c.compare(r, c.del)}
}

func (c comparison) compare(r *Results, metric string) string {
	theirs, measured := r.Find(Point{c.scenario, c.cased, Reference, metric})
	ours, measuredToo := r.Find(Point{c.scenario, c.cased, c.plugins, metric})
	if !measured || !measuredToo {
		return none
	}
	return fmt.Sprintf("%s → %s (%s)", number(theirs.Median), number(ours.Median), faster(theirs.Median/ours.Median))
}

// faster shows a quotient as a number of times.
func faster(quotient float64) string { return number(quotient) + "x" }
