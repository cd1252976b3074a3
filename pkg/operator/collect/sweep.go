package collect

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Release lets go of what cnibox's own plugins hold for an attachment and for no other, whether the runtime finds them or not.
func Release(ctx context.Context, a *node.Attachment, plugins plugin.Table) error {
	return release(ctx, ownOf(a.Held), plugins)
}

// ownOf returns the things that say whose they are.
func ownOf(holdings []node.Holding) []node.Holding {
	return slices.DeleteFunc(slices.Clone(holdings), func(t node.Holding) bool { return t.Held.Owner == "" && t.Held.Key.IfName == "" })
}

// release lets go of things: of leases last, so that nobody gets an address that something still points at.
func release(ctx context.Context, holdings []node.Holding, plugins plugin.Table) error {
	var errs []error
	for _, last := range []bool{false, true} {
		for _, t := range holdings {
			if row := plugins.Find(t.Plugin); last != (row != nil && row.Kind == plugin.IPAM) {
				continue
			}
			if err := t.Store.Release(ctx, []plugin.Held{t.Held}); err != nil {
				errs = append(errs, fmt.Errorf("release %s: %w", t.What, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Sweep removes what items that were removed still hold: the reference plugins' DEL leaves things behind.
func (r *Report) Sweep(ctx context.Context, o Options) {
	isDone := func(it *Item) bool { return it.Outcome == Removed && len(it.results) > 0 }
	if !slices.ContainsFunc(r.Goes, isDone) {
		return
	}
	n := node.Read(ctx, o.Options)
	holdings := slices.Clone(n.Unowned)
	for _, a := range n.Attachments {
		if !lives(a) {
			holdings = append(holdings, a.Held...)
		}
	}
	for _, it := range r.Goes {
		a := n.Attachment(it.key())
		isAgain := a != nil && slices.ContainsFunc(a.Held, func(t node.Holding) bool { return !lists(it.Held, t) })
		if !isDone(it) || isAgain { // a new ADD of it is under way
			continue
		}
		left := slices.DeleteFunc(slices.Clone(it.Held), func(t node.Holding) bool { return !isStill(holdings, t) || isShared(n, t) })
		if err := release(ctx, left, o.Plugins); err != nil {
			it.end(fmt.Errorf("remove what the DEL of %s of network %s has left: %w", it.Name(), it.Network, err), o)
		}
	}
}

// isStill reports whether a thing is in a list that was made later. Whose it is may not be known any more, as its result is gone.
func isStill(list []node.Holding, t node.Holding) bool {
	return slices.ContainsFunc(list, func(now node.Holding) bool {
		isOther := now.Held.Key.ContainerID != "" && now.Held.Key != t.Held.Key
		return !isOther && now.Plugin == t.Plugin && now.What == t.What && reflect.DeepEqual(now.Held.Own, t.Held.Own)
	})
}

func lives(a *node.Attachment) bool { return a.Result != nil || a.State == node.Alive }

// isShared reports whether something that only says its container may be another attachment's of that container.
func isShared(n *node.Node, t node.Holding) bool {
	k := t.Held.Key
	return k.IfName == "" && t.Held.Owner == "" && slices.ContainsFunc(n.Attachments, func(a *node.Attachment) bool {
		isOf := a.ContainerID == k.ContainerID || slices.Contains(t.Held.MayBe, a.ContainerID)
		return isOf && lives(a) && (k.Network == "" || k.Network == a.Network)
	})
}
