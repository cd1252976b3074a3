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
	lock, err := state.Hold(ctx, lockFile)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	return removeFrom(ctx, tables, k, keys, unowned)
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
