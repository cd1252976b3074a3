package node

import (
	"context"
	"slices"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Shared is what the hosts have together that share a network's addresses.
type Shared struct {
	shared.Report
	Error string `json:"error,omitempty"` // why etcd can't be asked; what this host knows is there all the same
}

// Shared returns the networks whose addresses are in etcd, each once: as its file says or, if it has none, what an attachment was made with.
func (n *Node) Shared() (list []shared.Store) {
	for _, s := range n.Stores {
		s, ok := s.(shared.Store)
		if ok && !slices.ContainsFunc(list, func(of shared.Store) bool { return of.Name() == s.Name() }) {
			list = append(list, s)
		}
	}
	return list
}

// readShared asks etcd, and returns what it has of this host of which there is no note: its disk was lost.
func (n *Node) readShared(ctx context.Context, o Options, known []Holding) (holdings []Holding) {
	if !o.Shared {
		return nil
	}
	for _, s := range n.Shared() {
		w := n.network(s.Name())
		w.Shared = &Shared{}
		r, err := s.Report(ctx)
		if err != nil {
			w.Shared.Error = err.Error()
			continue
		}
		w.Shared.Report = *r
		for _, h := range r.Held {
			k := plugin.Key{Network: w.Name, ContainerID: h.ContainerID, IfName: h.IfName}
			isKnown := slices.ContainsFunc(known, func(t Holding) bool {
				own, ok := t.Held.Own.(shared.Held)
				return ok && t.Held.Key == k && own.Address == h.Address
			})
			if !isKnown && h.Address.IsValid() {
				t := newThing(shared.Plugin, plugin.Held{Key: k, What: "address " + h.Address.String(), Since: h.Since, Own: h}, s)
				t.by = []string{shared.Plugin}
				holdings = append(holdings, t)
			}
		}
	}
	return holdings
}

// spread takes the figures of a pool over all hosts in place of this host's.
func (w *Network) spread() {
	if w.Shared == nil || w.Shared.Error != "" {
		return
	}
	for _, p := range w.Pools {
		for _, of := range w.Shared.Pools {
			if of.Range == p.Range {
				p.Used, p.By = of.Used, of.By
			}
		}
	}
}
