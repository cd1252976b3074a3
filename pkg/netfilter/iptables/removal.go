package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// removal is what is to be taken away: what attachments have for a use, but for rules that others have too. What the
// reference plugins made is known by the containers' chains and by addresses.
type removal struct {
	use     Use
	keys    map[plugin.Key]bool
	hint    []rule          // of the attachments too, if they are nobody else's
	network string          // all containers' chains of it go, but for those that are known; "" for none
	known   map[string]bool // containers' chains that stay
}

// takes reports whether a rule goes because of its owner.
func (rm removal) takes(r rule) bool {
	return r.owner.use == rm.use.name && rm.keys[r.owner.key]
}

// chains returns the containers' chains of the attachments.
func (rm removal) chains() []string { return rm.use.chains(slices.Collect(maps.Keys(rm.keys))...) }

func (rm removal) isUnknown(chain string) bool { return rm.use.isChain(chain) && !rm.known[chain] }

// remove takes it away, and returns the published ports that went. It runs no program and takes no lock if there is nothing.
func (b *Backend) remove(ctx context.Context, rm removal) (maps []netfilter.PortMap, err error) {
	owned, err := readOwned()
	if err != nil {
		return nil, err
	}
	mine := filter(owned, rm.takes)
	tables, err := b.tablesFor(ctx, rm, mine)
	if err != nil || len(mine)+len(tables) == 0 {
		return nil, err
	}
	err = state.Locked(ctx, lockFile, func() error {
		maps, err = rm.from(ctx, tables)
		return err
	})
	return maps, err
}

// tablesFor returns those in which there may be something to remove.
func (b *Backend) tablesFor(ctx context.Context, rm removal, mine []rule) (list []*table, err error) {
	for _, f := range families() {
		isHeld, chains := len(in(f, mine)) > 0, rm.chains()
		if rm.use.prefixes == nil {
			chains = []string{forwardChain, stage1}
			if !isHeld && len(in(f, rm.hint)) == 0 {
				continue
			}
		}
		if rm.network != "" {
			there, err := b.nftChains(f, rm.use.table)
			if err != nil {
				return nil, err
			}
			chains = append(chains, filter(there, rm.isUnknown)...)
		}
		tables, err := b.tables(ctx, f, rm.use.table, isHeld, chains)
		if err != nil {
			return nil, err
		}
		list = append(list, tables...)
	}
	return list, nil
}

// from takes it away from tables and then from the file of owners. The lock is held.
func (rm removal) from(ctx context.Context, tables []*table) (maps []netfilter.PortMap, err error) {
	before, err := readOwned()
	if err != nil {
		return nil, err
	}
	after := filter(before, func(r rule) bool { return !rm.takes(r) })
	var errs []error
	for _, t := range tables {
		if err := t.read(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		c := rm.change(t, before, after)
		for _, r := range without(t.in(c.own...), c.wanted) {
			if m, ok := portMapOf(r); ok {
				maps = append(maps, m)
			}
		}
		errs = append(errs, t.edit(ctx, c))
	}
	if err := errors.Join(errs...); err != nil || len(after) == len(before) {
		return maps, err
	}
	return maps, writeOwned(after)
}

// change returns what takes it away from a table, when the rules of all owners are to be others than before.
func (rm removal) change(t *table, before, after []rule) change {
	own := rm.chains()
	for _, r := range t.rules {
		if rm.network != "" && strings.Contains(r.spec, `name: \"`+rm.network+`\" id: `) { // as a comment has it
			own = append(own, filter([]string{r.chain, r.target()}, rm.isUnknown)...)
		}
	}
	there := setOf(filter(own, func(chain string) bool { return t.chains[chain] }))
	others := filter(in(t.family, after), func(r rule) bool { return r.isAbout(there) })
	return change{own: own, wanted: others, gone: without(slices.Concat(before, rm.hint), after)}
}
