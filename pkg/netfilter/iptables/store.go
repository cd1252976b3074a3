package iptables

import (
	"context"
	"errors"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Held lists who has rules of the kind: owners in the file, and those of containers' chains of the reference plugins, whose comments name
// the network and the container. Their rules for addresses name nobody.
func (k Kind) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	owned, err := readOwned()
	if err != nil {
		return nil, err
	}
	owners := map[owner]bool{}
	for _, r := range owned {
		if r.owner.kind == k {
			owners[r.owner] = true
		}
	}
	known := chainsOf(owners)
	var errs []error
	for _, f := range families() {
		tables, err := On(conn, nil).unknownTables(ctx, k, f, known)
		errs = append(errs, err)
		for _, t := range tables {
			if err := t.read(ctx); err != nil {
				errs = append(errs, err)
				continue
			}
			for _, r := range t.rules {
				key, ok := namedBy(r)
				// The chain is called after both: a comment that was cut does not name them.
				o := owner{k, key}
				isOwn := func(chain string) bool { return !known[chain] && slices.Contains(o.chains(), chain) }
				if ok && (isOwn(r.chain) || isOwn(r.target())) {
					owners[o] = true
				}
			}
		}
	}
	for o := range owners {
		if network == "" || network == o.key.Network {
			list = append(list, plugin.Held{Key: o.key, What: "rules of iptables: " + string(k)})
		}
	}
	return list, errors.Join(errs...)
}

// IsNote reports whether none of the rules is there that an attachment has by the file of owners, as after a DEL of the reference plugins.
func (k Kind) IsNote(ctx context.Context, h plugin.Held) (bool, error) {
	conn, err := nft.Open()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	o := owner{k, h.Key}
	owned, err := readOwned()
	if err != nil {
		return false, err
	}
	owned = filter(owned, func(r rule) bool { return r.owner == o })
	for _, f := range families() {
		own := missing(ofFamily(f, owned), nil) // two addresses have rules in common
		if len(own) == 0 {
			continue
		}
		b := On(conn, nil)
		tables, err := b.tables(ctx, f, k.table(), true, append(o.chains(), forwardChain, stage1))
		if err != nil {
			return false, err
		}
		for _, t := range tables {
			if lacking, err := b.lacking(ctx, t, own); err != nil || len(lacking) < len(own) {
				return false, err
			}
		}
	}
	return len(owned) > 0, nil
}

// Has reports whether an attachment has anything of a kind here, or the reference plugins' chain for it.
func (b *Backend) Has(ctx context.Context, r Rules) (bool, error) {
	owned, err := b.listings.readOwned()
	if err != nil || slices.ContainsFunc(owned, func(o rule) bool { return o.owner == r.owner }) {
		return err == nil, err
	}
	chains := r.owner.chains()
	if r.owner.kind == Forwarding { // which has none for each container
		chains = []string{forwardChain}
	}
	for _, f := range families() {
		tables, err := b.tables(ctx, f, r.owner.kind.table(), false, chains)
		if err != nil {
			return false, err
		}
		for _, t := range tables {
			own := missing(ofFamily(f, r.own), nil) // each once, as in what is lacking
			lacking, err := b.lacking(ctx, t, own)
			isOwn := func(chain string) bool { return r.owner.kind != Forwarding && t.chains[chain] }
			if err != nil || len(lacking) < len(own) || slices.ContainsFunc(chains, isOwn) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// unknownTables returns the tables in which there may be containers' chains that are not known.
func (b *Backend) unknownTables(ctx context.Context, k Kind, f *family, known map[string]bool) ([]*table, error) {
	if k == Forwarding {
		return nil, nil
	}
	there, err := b.conn.HasTables(nftTable(f, k.table()))
	if err != nil {
		return nil, err
	}
	var names []string
	if there[0] {
		chains, err := b.conn.ListChainsOfTableFamily(f.nft)
		if err != nil {
			return nil, err
		}
		for _, c := range chains {
			if c.Table.Name == k.table() && k.isChain(c.Name) && !known[c.Name] {
				names = append(names, c.Name)
			}
		}
	}
	return b.tables(ctx, f, k.table(), false, names)
}

// Release takes away what is listed.
func (k Kind) Release(ctx context.Context, list []plugin.Held) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	leaving := map[owner]bool{}
	for _, h := range list {
		leaving[owner{k, h.Key}] = true
	}
	_, err = On(conn, nil).remove(ctx, k, leaving, nil)
	return err
}
