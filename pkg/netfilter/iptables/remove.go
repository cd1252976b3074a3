package iptables

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// removal is what is to be taken away: what attachments have for a use, but for rules that others have too. What the
// reference plugins made is known by the containers' chains and by addresses.
type removal struct {
	use      Use
	keys     []plugin.Key
	hint     []netip.Prefix          // what the attachment had, if a runtime says so
	unowned  func(*listing) []string // returns more containers' chains, unless it is nil
	isLocked bool                    // by the caller
}

// remove takes it away, and returns the rules that went. It runs no program and takes no lock if there is nothing.
func (b *Backend) remove(ctx context.Context, rm removal) (removed []rule, err error) {
	list, err := readOwners()
	if err != nil {
		return nil, err
	}
	mine, _ := list.split(rm.isMeant)
	tables, err := rm.tables(ctx, b, mine)
	if err != nil || len(mine)+len(tables) == 0 {
		return nil, err
	}
	if !rm.isLocked {
		rm.isLocked = true
		err = locked(ctx, func() error {
			removed, err = b.remove(ctx, rm)
			return err
		})
		return removed, err
	}
	_, rest := list.split(rm.isMeant)
	var errs []error
	for _, t := range tables {
		var unknown []rule
		errs = append(errs, t.edit(ctx, func(l *listing) (lines []string, err error) {
			lines, unknown = rm.plan(t.family, l, mine, rest)
			return lines, nil
		}))
		removed = append(removed, unknown...)
	}
	if err := errors.Join(errs...); err != nil || len(mine) == 0 {
		return removed, err
	}
	return mine.rules(), rest.write()
}

func (rm removal) isMeant(o owner) bool { return o.use == rm.use.name && slices.Contains(rm.keys, o.key) }

// tables returns those in which there may be something to remove.
func (rm removal) tables(ctx context.Context, b *Backend, mine owners) (list []*table, err error) {
	for _, f := range families() {
		isHeld, chains := len(in(f, mine.rules())) > 0, rm.own()
		if rm.use.prefixes == nil {
			if !isHeld && len(rm.hinted(f)) == 0 {
				continue
			}
			chains = []string{forwardChain, stage1}
		}
		if rm.unowned != nil {
			chains = nil // any
		}
		tables, err := b.tables(ctx, f, rm.use.table, isHeld, chains...)
		if err != nil {
			return nil, err
		}
		list = append(list, tables...)
	}
	return list, nil
}

// own returns the containers' chains, each once.
func (rm removal) own() (chains []string) {
	for _, key := range rm.keys {
		chains = append(chains, rm.use.chains(key)...)
	}
	slices.Sort(chains)
	return slices.Compact(chains)
}

// hinted returns the rules in chains that all share which an attachment had for the addresses of the hint.
func (rm removal) hinted(f *family) (rules []rule) {
	for _, p := range rm.hint {
		if rm.use.prefixes == nil {
			rules = append(rules, addressRules(p.Addr())...)
		}
	}
	return in(f, rules)
}

// plan returns the lines that remove it, and the rules of containers' chains that go.
func (rm removal) plan(f *family, l *listing, mine, rest owners) (lines []string, gone []rule) {
	c := change{own: rm.own(), gone: without(slices.Concat(mine.rules(), rm.hinted(f)), rest.rules())}
	if rm.unowned != nil {
		c.own = append(c.own, rm.unowned(l)...)
		slices.Sort(c.own)
		c.own = slices.Compact(c.own)
	}
	isThere := func(chain string) bool { return slices.Contains(c.own, chain) && l.chains[chain] }
	c.wanted = filter(in(f, rest.rules()), func(r rule) bool { return isThere(r.chain) || isThere(r.target()) })
	if rm.use.name == Masquerading.name && len(mine)+len(c.wanted) == 0 && len(rm.hint) > 0 {
		// The reference plugins masquerade all interfaces of a container by one chain.
		if others := filter(l.jumpsTo(c.own[0]), func(r rule) bool { return !rm.isFrom(r) }); len(others) > 0 {
			c.wanted = append(l.inChain(c.own[0]), others...)
		}
	}
	for _, chain := range c.own {
		gone = append(gone, without(l.inChain(chain), c.wanted)...)
	}
	return c.lines(l), gone
}

// isFrom reports whether a rule is for an address of the hint. Older versions of the reference plugins name the
// network's prefix with it.
func (rm removal) isFrom(r rule) bool {
	source, err := netip.ParsePrefix(option(words(r.spec), "-s"))
	return err == nil && slices.ContainsFunc(rm.hint, func(p netip.Prefix) bool { return source.Contains(p.Addr()) })
}
