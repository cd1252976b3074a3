package node

import (
	"cmp"
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Holding is something that a plugin holds for an attachment, as it lists it.
type Holding struct {
	Plugin string `json:"plugin"`
	What   string `json:"what"`

	Network string     `json:"network,omitempty"`
	Owner   string     `json:"owner,omitempty"` // network/container/interface, or as much of it as is known
	Since   *time.Time `json:"since,omitempty"`

	Held  plugin.Held  `json:"-"`
	Store plugin.Store `json:"-"` // that can release it

	by []string // all plugins that list it
}

// Address returns the address that is held, if it is one.
func (t Holding) Address() (netip.Addr, bool) {
	switch own := t.Held.Own.(type) {
	case lease.Lease:
		return own.Address, true
	case shared.Held:
		return own.Address, own.Address.IsValid()
	}
	return netip.Addr{}, false
}

// readHeld asks all plugins what they hold, each with every configuration that may say where that is.
func (n *Node) readHeld(ctx context.Context, o Options, results []*Result) (holdings []Holding) {
	n.parts = []*netconf.Part{netconf.NewPart(conf.New(), o.Plugins.Find)}
	networks := []string{""} // of which each part is
	add := func(network string, l *netconf.List) {
		n.parts = append(n.parts, l.Inside()...)
		for len(networks) < len(n.parts) {
			networks = append(networks, network)
		}
	}
	for _, w := range n.Networks {
		add(w.Name, netconf.Of(w.List, w.File, o.Plugins.Find))
	}
	type text struct{ network, config string }
	seen := map[text]bool{}
	for _, r := range results {
		if is := (text{r.Network, string(r.Config)}); !seen[is] {
			seen[is] = true
			if l, err := netconf.Parse("", r.Config, o.Plugins.Find); err == nil {
				add(r.Network, l)
			}
		}
	}
	var valid []plugin.Key // by which the reference plugins' rules are told apart, whose comments are hashes
	for _, r := range results {
		valid = append(valid, r.Key())
	}
	host := netns.NewPair("", false)
	defer host.Close()
	l := list{index: map[string]int{}, asked: map[plugin.Store][]int{}}
	for _, row := range o.Plugins {
		holder, ok := row.Plugin.(plugin.Holder)
		if !ok {
			continue
		}
		for i, p := range n.parts {
			if !isFor(p, row) {
				continue
			}
			r := &plugin.Request{Key: plugin.Key{Network: networks[i]}, Config: p.Config, Pair: host, Path: o.BinDirs, Results: o.caches()[0] + "/results", Valid: valid}
			for _, s := range holder.Stores(r) {
				if err := l.ask(ctx, row.Name, s); err != nil {
					n.couldNot("what "+row.Name+" holds", err, "")
				}
			}
		}
	}
	n.Stores = l.stores
	return l.holdings
}

// list is what plugins hold, each thing once.
type list struct {
	holdings []Holding
	stores   []plugin.Store
	index    map[string]int         // of each thing
	asked    map[plugin.Store][]int // the things that a store has
}

// ask adds what a plugin has in a store. Several plugins may have the same one.
func (l *list) ask(ctx context.Context, name string, s plugin.Store) error {
	isComparable := reflect.TypeOf(s).Comparable() // most are the same whatever the configuration
	if isComparable {
		if holdings, known := l.asked[s]; known {
			for _, i := range holdings {
				l.holdings[i].by = append(l.holdings[i].by, name)
			}
			return nil
		}
		l.asked[s] = nil
	}
	l.stores = append(l.stores, s)
	listed, err := link.Uninterrupted(func() ([]plugin.Held, error) { return s.Held(ctx, "") })
	slices.SortStableFunc(listed, func(a, b plugin.Held) int { return strings.Compare(a.What, b.What) }) // a kernel's map has no order
	for _, h := range listed {
		t := newThing(name, h, s)
		id := strings.Join(append(h.MayBe, t.Network, t.Owner, t.What), "\n")
		i, known := l.index[id]
		if !known {
			i = len(l.holdings)
			l.index[id], l.holdings = i, append(l.holdings, t)
		}
		l.holdings[i].by = append(l.holdings[i].by, name)
		if isComparable {
			l.asked[s] = append(l.asked[s], i)
		}
	}
	return err
}

func newThing(name string, h plugin.Held, s plugin.Store) Holding {
	t := Holding{Plugin: name, What: h.What, Network: h.Key.Network, Owner: h.Owner, Held: h, Store: s}
	if t.Owner == "" && h.Key.ContainerID != "" {
		t.Owner = strings.TrimSuffix(h.Key.String(), "/")
	}
	if !h.Since.IsZero() {
		since := h.Since.UTC()
		t.Since = &since
	}
	return t
}

// nameHolders says which of several plugins that list a thing is the one that the attachment has.
func (n *Node) nameHolders(a *Attachment) {
	types := a.Plugins
	if w := n.Network(a.Network); a.Result == nil && w != nil {
		types = w.Plugins
	}
	for i, t := range a.Held {
		for _, name := range types {
			if row := n.plugins.Find(name); row != nil && slices.Contains(t.by, row.Name) {
				a.Held[i].Plugin = row.Name
				break
			}
		}
	}
}

// isFor reports whether a plugin may be called with a configuration, by a runtime or by another plugin. An empty one stands for what
// plugins do unless they are told otherwise.
func isFor(p *netconf.Part, row plugin.Descriptor) bool {
	return p.Config.Keys() == nil || p.Is(row.Name) || row.Kind == plugin.IPAM && p.Config.Has("ipam")
}

// addThing gives a thing to the attachment that holds it. A thing that says its container only is given to that container's attachments
// on the network, or on all; one that does not say even that is nobody's.
func (n *Node) addThing(t Holding) {
	k := t.Held.Key
	switch {
	case t.Held.Owner != "" || k.Network != "" && k.ContainerID != "" && k.IfName != "":
		owner := t.Held.Owner
		if owner == "" {
			owner = k.String()
		}
		a := n.byKey[owner]
		if a == nil {
			a = n.newAttachment(owner, k)
		}
		if a.ContainerID == "" { // what was listed before had a key that was cut
			a.Network, a.ContainerID, a.IfName = cmp.Or(a.Network, k.Network), k.ContainerID, cmp.Or(a.IfName, k.IfName)
		}
		a.Held = append(a.Held, t)
		return
	case k.ContainerID != "" || t.Held.MayBe != nil:
		for _, a := range n.Attachments {
			isOf := a.ContainerID == k.ContainerID || slices.Contains(t.Held.MayBe, a.ContainerID)
			if isOf && (k.Network == "" || k.Network == a.Network) {
				a.Held = append(a.Held, t)
				return
			}
		}
	}
	n.Unowned = append(n.Unowned, t)
}
