package report

import (
	"fmt"
	"strings"
)

// WholeNode is the scenario of what asks about all attachments of a node.
const WholeNode = "many-node"

// many are the sections of the page about many attachments.
var many = []section{
	{scenario: "many-once", title: "250 at once", about: `bridge (isGateway, ipMasq, host-local), tuning, portmap with one port: 250 calls of the runtime at the same moment. netavark has no IPAM, is told the
address, and is called without libcni. "After a reboot" 250 leases and results of pods that are no more are left, and nothing else. The processes' CPU is per
call; "waits" is the wall time against that CPU divided by the processors, and "idle" how much of the processors nobody used: what is neither is other work
of the machine, and the kernel's own threads.`,
		varied: "node", columns: append(perOnce("ADD"), append(perOnce("DEL"), column{"load", "load", median(1)})...)},
	manySection("many-ptp", "ptp", "ptp (ipMasq, host-local) and portmap with one port"),
	manySection("many-bridge", "bridge", "bridge (isGateway, ipMasq, host-local) and portmap with one port, to 1,000: a bridge has 1,023 ports"),
	manySection("many-macvlan", "macvlan", "macvlan and host-local, all on one master"),
	{scenario: WholeNode, title: "The whole node", about: `These ask about all attachments of a network. GC is libcni's, of all plugins, with all attachments valid. doctor has all its checks. repair is after
` + "`nft flush ruleset`" + `, to its end; with macvlan, which needs no rules, it only looks. The agent's CPU is what it uses of one core when nothing happens;
"mended" is from a flush until all rules are back, with nobody but the agent to do it; "peak" is its memory after that.`,
		varied: "attachments", columns: []column{
			{"STATUS ms", "STATUS", median(1)}, {"GC ms", "GC", median(1)}, {"show s", "show", median(1e3)}, {"CPU", "show CPU", median(1e3)}, {"MiB", "show RSS", median(1 << 20)},
			{"doctor s", "doctor", median(1e3)}, {"CPU", "doctor CPU", median(1e3)}, {"MiB", "doctor RSS", median(1 << 20)},
			{"repair s", "repair", median(1e3)}, {"CPU", "repair CPU", median(1e3)},
			{"agent, % of a core", "agent CPU", median(1)}, {"agent MiB", "agent RSS", median(1 << 20)},
			{"mended s", "mended", median(1e3)}, {"CPU", "mended CPU", median(1e3)}, {"peak MiB", "agent peak", median(1 << 20)},
		},
		plots: []plot{
			{"many-doctor.svg", "cnictl doctor against attachments on the node", "doctor", "attachments", "ms", false},
			{"many-repair.svg", "cnictl repair after a flush against attachments on the node", "repair", "attachments", "ms", false},
		}},
}

func manySection(scenario, kind, about string) section {
	s := section{scenario: scenario, title: kind, about: about + ". Calls are made one after the other, through libcni.", varied: "attachments"}
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		s.columns = append(s.columns, column{verb + " ms p50 / p95", verb, latency}, column{"CPU ms", verb + " CPU", median(1)}, column{"of an empty node's", verb + " CPU", growth})
	}
	s.columns = append(s.columns, column{"load", "load", median(1)})
	for _, verb := range []string{"ADD", "DEL"} {
		s.plots = append(s.plots, plot{fmt.Sprintf("%s-%s.svg", scenario, map[string]string{"ADD": "add", "DEL": "del"}[verb]), verb + " of " + kind + " against attachments on the node", verb, "attachments already there", "ms", false})
	}
	return s
}

func perOnce(verb string) []column {
	return []column{{verb + " ms p50 / p95", verb, latency}, {"p99", verb + " p99", median(1)}, {"wall per call", verb + " wall", median(1)},
		{"CPU per call", verb + " CPU", median(1)}, {"caller's", verb + " caller", median(1)}, {"waits", verb + " waits", multiple}, {"idle, %", verb + " idle", median(1)}, {"failed", verb + " failed", failures}}
}

// multiple shows a number of times.
var multiple = show(func(f Figure) string { return number(f.Median) + "x" })

// growth shows how many times a figure is that of an empty node.
func growth(r *Results, p Point) string {
	empty := p
	empty.Case = "0"
	quotient, measured := r.Ratio(p, empty)
	if !measured || p.Case == "0" {
		return none
	}
	return number(quotient) + "x"
}

// manyMarkdown returns the page. Notes, which may be empty, are a text of Markdown about what the figures come from.
func (r *Results) manyMarkdown(notes string) string {
	text := manyHead
	for _, s := range many {
		if section := r.Section(s.scenario); section != "" {
			text += "\n" + section
		}
	}
	if notes = strings.TrimSpace(notes); notes != "" {
		text += "\n" + notes + "\n"
	}
	text += manyMeasured
	for _, f := range r.Facts {
		text += fmt.Sprintf("- %s: %s\n", f.Name, f.Value)
	}
	return text + manyRepeat
}

const manyHead = `# Many on a node, and many at once

Users of dense nodes meet bursts, all pods of a node started at the same moment, and numbers, thousands of attachments on a node. [The other
page](README.md) has single calls on a node that is nearly empty. [many.json](many.json) has all figures.

"reference" are the reference plugins, built from their module, "cnibox" has an entry for each plugin, as in any conflist, and "chain" the same
plugins in one [chain](../../plugins/chain.md) entry. "kernel alone" makes and removes the same link by a process that is there already, with no
plugin: what of the growth is the kernel's shows there.
`

const manyMeasured = `
## How it was measured

A node is a network and a mount namespace of its own, a container a network namespace. Attachments that fill a node are made by cnibox. The reference
plugins make one more on the same node: they have the links and leases of all others beside them, but not as many rules of their own. Calls are in
an order drawn anew for each round. CPU is user and system time of all processes of a call.

The machine is shared. "load" beside a table's rows is that of the last minute, the benchmark's own included: a load of 20 on two processors means that
a call gets a tenth of what it would have alone, so that wall times say little and CPU times more.

`

const manyRepeat = `
## How to repeat it

` + "```sh" + `
make bench-many            # all of this page, in parts of some minutes each
make bench-many MANY=ptp   # one part: cnibox, others, ptp, ptp-10000, bridge, macvlan, macvlan-10000
` + "```" + `

It needs root, and 4 GB of memory for 10,000 attachments. It changes nothing of the machine's own network, and what it makes goes with its process.
`
