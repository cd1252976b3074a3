package iptables

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Del takes away what an attachment has of a kind, and returns the published ports among it. hint is the addresses that it had, if a
// runtime says so: the reference plugin's rules for addresses do not say whose they are.
func (b *Backend) Del(ctx context.Context, k Kind, key plugin.Key, hint []netip.Prefix) ([]spec.PortMap, error) {
	var unowned []rule
	for _, p := range hint {
		if k == Forwarding {
			unowned = append(unowned, addressRules(p.Addr())...)
		}
	}
	return b.remove(ctx, k, map[owner]bool{{k, key}: true}, unowned)
}

// remove takes away what owners have of a kind, and rules that are nobody else's. It returns the published ports that went. Where there is
// nothing it runs no program and takes no lock.
func (b *Backend) remove(ctx context.Context, k Kind, leaving map[owner]bool, unowned []rule) (ports []spec.PortMap, err error) {
	owned, err := readOwned()
	if err != nil {
		return nil, err
	}
	owned = filter(owned, func(r rule) bool { return leaving[r.owner] })
	chains := slices.Collect(maps.Keys(chainsOf(leaving)))
	if k == Forwarding {
		chains = []string{forwardChain, stage1}
	}
	var tables []*table
	for _, f := range families() {
		isHeld := len(ofFamily(f, owned)) > 0
		if k == Forwarding && !isHeld && len(ofFamily(f, unowned)) == 0 {
			continue
		}
		list, err := b.tables(ctx, f, k.table(), isHeld, chains)
		if err != nil {
			return nil, err
		}
		tables = append(tables, list...)
	}
	if len(owned)+len(tables) == 0 {
		return nil, nil
	}
	lock, err := state.LockRun(ctx, lockFile)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	defer b.listings.forget()
	return removeFrom(ctx, tables, leaving, unowned)
}

// removeFrom does so in tables and then in the file of owners. The lock is held.
func removeFrom(ctx context.Context, tables []*table, leaving map[owner]bool, unowned []rule) (ports []spec.PortMap, err error) {
	before, err := readOwned()
	if err != nil {
		return nil, err
	}
	after := filter(before, func(r rule) bool { return !leaving[r.owner] })
	var errs []error
	for _, t := range tables {
		if err := t.read(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		c := t.changeTo(slices.Concat(before, unowned), after, leaving)
		for _, r := range missing(t.rules, c.wanted) {
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
