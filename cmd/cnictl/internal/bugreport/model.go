package bugreport

import (
	"context"
	"errors"
	"slices"

	"github.com/cnibox/cnibox/pkg/collect"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/node/runtimes"
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

// readGC reads what gc would remove.
func (s *source) readGC(ctx context.Context, out *output) {
	if s.node == nil {
		out.fail("gc", errNoNode)
		return
	}
	out.addJSON("gc.json", collect.Plan(ctx, s.node, collect.Options{Options: s.Options.Options, Network: s.Network, Runtimes: runtimes.All}))
}
