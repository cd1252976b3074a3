package bugreport

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/metrics"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

var errNoNode = errors.New("what is on the node could not be read: see node.error")

// readNode reads what cnictl show prints, of which other parts say more.
func (s *source) readNode(ctx context.Context, out *output) {
	n := node.Read(ctx, s.Options.Options)
	out.hand(n)
	out.addJSON("node.json", s.ofNetwork(n))
}

// hand hands what is on the node over to the parts that come after.
func (o *output) hand(n *node.Node) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if !o.over {
		o.node = n
	}
}

// ofNetwork returns what the node has of the network that is asked for.
func (s *source) ofNetwork(n *node.Node) *node.Node {
	if s.Network == "" {
		return n
	}
	of := *n
	of.Attachments = slices.DeleteFunc(slices.Clone(n.Attachments), func(a *node.Attachment) bool { return a.Network != s.Network })
	of.Networks = slices.DeleteFunc(slices.Clone(n.Networks), func(w *node.Network) bool { return w.Name != s.Network })
	of.Unowned = slices.DeleteFunc(slices.Clone(n.Unowned), func(t node.Thing) bool { return t.Network != "" && t.Network != s.Network })
	return &of
}

// readDoctor reads what doctor finds, and metrics, in which that is.
func (s *source) readDoctor(ctx context.Context, out *output) {
	if s.node == nil {
		out.fail("doctor", errNoNode)
		return
	}
	found := doctor.Examine(ctx, doctor.Options{Options: s.Options.Options, Node: s.node})
	out.addJSON("doctor.json", found)
	figures := metrics.Source{Node: s.node, Findings: found.Findings, Time: time.Now()}
	if err := figures.ReadLog(s.LogDir); err != nil {
		out.fail("the log of calls", err)
	}
	var text bytes.Buffer
	if err := metrics.Write(&text, figures); err != nil {
		out.fail("metrics", err)
	}
	out.add("metrics.prom", text.Bytes())
}

// readGC reads what gc would remove.
func (s *source) readGC(ctx context.Context, out *output) {
	if s.node == nil {
		out.fail("gc", errNoNode)
		return
	}
	out.addJSON("gc.json", collect.Plan(ctx, s.node, collect.Options{Options: s.Options.Options, Network: s.Network}))
}

// mostCalls of the log are in the report, the last ones.
const mostCalls = 2000

func (s *source) readLog(_ context.Context, out *output) {
	log, err := calllog.Look(s.LogDir)
	if err != nil {
		out.fail(s.LogDir, err)
	}
	list, torn, err := calllog.Read(s.LogDir)
	if err != nil {
		out.fail(s.LogDir, err)
	}
	list = slices.DeleteFunc(list, func(c calllog.Call) bool { return s.Network != "" && c.Network != s.Network })
	out.addJSON("log.json", map[string]any{"log": log, "torn": torn, "calls": list[max(0, len(list)-mostCalls):]})
}
