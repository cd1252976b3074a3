package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

var connectionsNearlyFull = codes.Declare(finding.Code{Name: "connections-nearly-full", Severity: finding.Warning,
	Meaning: "The kernel tracks nine of ten connections that it may. When it has them all it drops what begins another one.",
	Remedy:  "`sysctl -w net.netfilter.nf_conntrack_max=…`"})

// checkConnections looks how many connections more the kernel tracks on the node. Each container's namespace has a table of its own.
func checkConnections(context.Context, *subject) ([]Finding, error) {
	c := node.ReadConnections()
	if !c.IsNearlyFull() {
		return nil, nil
	}
	return []Finding{found(connectionsNearlyFull, "", trace.MoreConnections(c.Tracked, c),
		"the kernel tracks %d connections on the node, and net.netfilter.nf_conntrack_max is %d", c.Tracked, c.Most)}, nil
}
