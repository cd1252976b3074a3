package iptables

import (
	"context"
	"slices"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// store is where attachments hold rules of a kind.
type store struct {
	*Backend
	kind Kind
}

// Store returns where attachments hold rules of a kind: the file of owners, and containers' chains of the reference plugins, whose
// comments name the network and the container. Their rules for addresses name nobody.
func (b *Backend) Store(k Kind) plugin.Store { return store{b, k} }

// Held lists what the file of owners has, and containers' chains that nobody in it has.
func (s store) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	owned, err := readOwned()
	if err != nil {
		return nil, err
	}
	owners := map[owner]bool{}
	for _, r := range owned {
		if r.owner.kind == s.kind {
			owners[r.owner] = true
		}
	}
	known := chainsOf(owners)
	for _, f := range families() {
		tables, err := s.unknownTables(ctx, f, known)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			if err := t.read(ctx); err != nil {
				return nil, err
			}
			for _, r := range t.rules {
				key, ok := namedBy(r)
				// The chain is called after both: a comment that was cut does not name them.
				if o := (owner{s.kind, key}); ok && !known[r.target()] && slices.Contains(o.chains(), r.target()) {
					owners[o] = true
				}
			}
		}
	}
	for o := range owners {
		if network == "" || network == o.key.Network {
			list = append(list, plugin.Held{Key: o.key, What: "rules of iptables: " + string(s.kind)})
		}
	}
	return list, nil
}

// unknownTables returns the tables in which there may be containers' chains that are not known.
func (s store) unknownTables(ctx context.Context, f *family, known map[string]bool) ([]*table, error) {
	there, err := s.conn.HasTables(nftTable(f, s.kind.table()))
	if err != nil || s.kind == Forwarding {
		return nil, err
	}
	var names []string
	if there[0] {
		chains, err := s.conn.ListChainsOfTableFamily(f.nft)
		if err != nil {
			return nil, err
		}
		for _, c := range chains {
			if c.Table.Name == s.kind.table() && s.kind.isChain(c.Name) && !known[c.Name] {
				names = append(names, c.Name)
			}
		}
	}
	return s.tables(ctx, f, s.kind.table(), false, names)
}

// Release takes away what is listed.
func (s store) Release(ctx context.Context, list []plugin.Held) error {
	leaving := map[owner]bool{}
	for _, h := range list {
		leaving[owner{s.kind, h.Key}] = true
	}
	_, err := s.remove(ctx, s.kind, leaving, nil)
	return err
}
