package iptables

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Del takes away what an attachment has of a kind, and returns the published ports among it. hint is the addresses that it had, if a
// runtime says so: the reference plugin's rules for addresses do not say whose they are.
func (b *Backend) Del(ctx context.Context, k Kind, key plugin.Key, hint []netip.Prefix) ([]spec.PortMap, error) {
	var rules []rule
	if k.table == filterTable {
		for _, p := range hint {
			rules = append(rules, addressRules(p.Addr())...)
		}
	}
	return b.remove(ctx, k, map[plugin.Key]bool{key: true}, rules)
}

// store is where attachments hold rules of a kind.
type store struct {
	*Backend
	kind Kind
}

// Store returns where attachments hold rules of a kind: the file of owners, and containers' chains of the reference plugins, whose
// comments name the network and the container. Their rules for addresses name nobody.
func (b *Backend) Store(k Kind) plugin.Store { return store{b, k} }

// Held lists what the file of owners has and, besides, containers' chains that nobody in it has.
func (s store) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	owned, err := readOwned()
	if err != nil {
		return nil, err
	}
	keys := map[plugin.Key]bool{}
	for _, r := range owned {
		if r.owner.kind == s.kind.name {
			keys[r.owner.key] = true
		}
	}
	known := setOf(s.kind.chainsOf(keys))
	for _, f := range families() {
		tables, err := s.unowned(ctx, f, known)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			if err := t.read(ctx); err != nil {
				return nil, err
			}
			for _, r := range t.rules {
				// A comment that was cut does not name the one that the chain is called after.
				if key, ok := namedBy(r); ok && !known[r.target()] && slices.Contains(s.kind.chains(key), r.target()) {
					keys[key] = true
				}
			}
		}
	}
	for key := range keys {
		if network == "" || network == key.Network {
			list = append(list, plugin.Held{Key: key, What: "rules of iptables: " + s.kind.name})
		}
	}
	return list, nil
}

// unowned returns tables in which there may be containers' chains that are not known.
func (s store) unowned(ctx context.Context, f *family, known map[string]bool) ([]*table, error) {
	if s.kind.prefixes == nil {
		return nil, nil
	}
	names, err := s.nftChains(f, s.kind.table)
	if err != nil {
		return nil, err
	}
	names = filter(names, func(chain string) bool { return s.kind.isChain(chain) && !known[chain] })
	return s.tables(ctx, f, s.kind.table, false, names)
}

// nftChains lists the chains of a table of nf_tables.
func (b *Backend) nftChains(f *family, name string) (names []string, err error) {
	if b.conn == nil {
		return nil, nil
	}
	if there, err := b.conn.HasTables(nftTable(f, name)); err != nil || !there[0] {
		return nil, err
	}
	chains, err := b.conn.ListChainsOfTableFamily(f.nft)
	for _, c := range chains {
		if c.Table.Name == name {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// Release takes away what is listed.
func (s store) Release(ctx context.Context, list []plugin.Held) error {
	keys := map[plugin.Key]bool{}
	for _, h := range list {
		keys[h.Key] = true
	}
	_, err := s.remove(ctx, s.kind, keys, nil)
	return err
}

// remove takes away what attachments have of a kind, and rules that are nobody else's. It returns the published ports that went. Where
// there is nothing it runs no program and takes no lock.
func (b *Backend) remove(ctx context.Context, k Kind, keys map[plugin.Key]bool, unowned []rule) (ports []spec.PortMap, err error) {
	owned, err := readOwned()
	if err != nil {
		return nil, err
	}
	mine := filter(owned, func(r rule) bool { return r.owner.isOne(k, keys) })
	var tables []*table
	for _, f := range families() {
		isHeld, chains := len(ofFamily(f, mine)) > 0, k.chainsOf(keys)
		if k.prefixes == nil {
			chains = []string{forwardChain, stage1}
			if !isHeld && len(ofFamily(f, unowned)) == 0 {
				continue
			}
		}
		list, err := b.tables(ctx, f, k.table, isHeld, chains)
		if err != nil {
			return nil, err
		}
		tables = append(tables, list...)
	}
	if len(mine)+len(tables) == 0 {
		return nil, nil
	}
	err = state.Locked(ctx, lockFile, func() error {
		ports, err = removeFrom(ctx, tables, k, keys, unowned)
		return err
	})
	return ports, err
}

// removeFrom does so in tables and then in the file of owners. The lock is held.
func removeFrom(ctx context.Context, tables []*table, k Kind, keys map[plugin.Key]bool, unowned []rule) (ports []spec.PortMap, err error) {
	before, err := readOwned()
	if err != nil {
		return nil, err
	}
	after := filter(before, func(r rule) bool { return !r.owner.isOne(k, keys) })
	var errs []error
	for _, t := range tables {
		if err := t.read(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		c := t.replacing(slices.Concat(before, unowned), after, k.chainsOf(keys))
		for _, r := range without(t.rules, c.wanted) {
			if m, ok := portMapOf(r); ok && c.containers[r.chain] {
				ports = append(ports, m)
			}
		}
		errs = append(errs, t.edit(ctx, c))
	}
	if err := errors.Join(errs...); err != nil || len(after) == len(before) {
		return ports, err
	}
	return ports, writeOwned(after)
}
