package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Backend is the backend on iptables, in the network namespace of the thread that calls it.
type Backend struct {
	conn *nft.Conn // nil if there is nothing of iptables-nft
}

// On returns the backend, which asks nf_tables over a connection. That is nil if the caller knows that none of
// iptables-nft's tables is there.
func On(conn *nft.Conn) *Backend { return &Backend{conn} }

// Available reports whether the host has the program that changes rules. Whether the kernel has what they need is only seen
// by adding one.
func (*Backend) Available() error {
	_, err := plainProgram(&ipv4)
	return err
}

// Add gives an attachment what it is to have for a use, in place of what it had.
func (b *Backend) Add(ctx context.Context, key plugin.Key, w Wants) error {
	if w.err != nil {
		return w.err
	}
	if len(w.shared)+len(w.own) == 0 {
		_, err := b.Del(ctx, w.use, key, nil)
		return err
	}
	return locked(ctx, func() (err error) {
		list, err := readOwners()
		if err != nil {
			return err
		}
		o := owner{w.use.name, key}
		var tables []*table
		for _, f := range families() {
			if len(w.rules(f))+len(in(f, list.of(o))) == 0 {
				continue
			}
			p, err := plainProgram(f)
			if err != nil {
				return err
			}
			t := &table{family: f, name: w.use.table, program: p}
			l, err := t.list(ctx)
			if err == nil {
				_, err = list.evict(f, l, key, w.ports) // fails if a port is taken, before anything has changed
			}
			if err != nil {
				return err
			}
			tables = append(tables, t)
		}
		var undo plugin.Undo
		defer undo.OnError(ctx, &err)
		undo.Push("remove the rules of iptables again", func(ctx context.Context) error {
			_, err := b.remove(ctx, removal{use: w.use, keys: []plugin.Key{key}, isLocked: true})
			return err
		})
		for _, t := range tables {
			next := list
			err := t.edit(ctx, func(l *listing) (lines []string, err error) {
				if next, lines, err = w.plan(t.family, l, o, list); err != nil {
					return nil, err
				}
				return lines, next.write()
			})
			if err != nil {
				return err
			}
			list = next
		}
		if w.localhost == "" {
			return nil
		}
		return allowLocalhost(w.localhost)
	})
}

// plan returns the owners as they are to be, and the lines that give one of them what it is to have in a table.
func (w Wants) plan(f *family, l *listing, o owner, list owners) (owners, []string, error) {
	before, own := in(f, list.of(o)), in(f, w.own)
	c := change{own: w.use.chains(o.key)}
	gone, err := list.evict(f, l, o.key, w.ports)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range gone {
		c.own = append(c.own, w.use.chains(key)...)
		list = list.with(owner{w.use.name, key}, f, nil)
	}
	foreign := filter(without(own, list.rules()), func(r rule) bool { return r.common && l.has(r) })
	list = list.with(o, f, without(own, foreign))
	c.wanted, c.gone = distinct(append(list.about(f, c.own), own...)), without(before, list.rules())
	if c.shared = in(f, w.shared); len(c.shared)+len(own) > 0 {
		c.chains = w.chains
	}
	return list, c.lines(l), nil
}

// Del takes away what an attachment has for a use, and returns the published ports among it. hint is what it had, if a
// runtime says so: some rules of the reference plugins do not say whose they are.
func (b *Backend) Del(ctx context.Context, u Use, key plugin.Key, hint []netip.Prefix) (maps []netfilter.PortMap, err error) {
	rm := removal{use: u, keys: []plugin.Key{key}, hint: hint}
	for _, p := range hint {
		if u.prefixes == nil {
			rm.rules = append(rm.rules, addressRules(p.Addr())...)
		}
	}
	removed, err := b.remove(ctx, rm)
	for _, r := range removed {
		if m, ok := portMapOf(r); ok {
			maps = append(maps, m)
		}
	}
	return maps, err
}

// Check makes sure that an attachment has what it is to have, in either flavour. It changes nothing.
func (b *Backend) Check(ctx context.Context, key plugin.Key, w Wants) error {
	if w.err != nil {
		return w.err
	}
	list, err := readOwners()
	if err != nil {
		return err
	}
	isHeld := len(list.of(owner{w.use.name, key})) > 0
	for _, f := range families() {
		tables, err := b.tables(ctx, f, w.use.table, false, append(w.use.chains(key), w.chains...))
		if err != nil {
			return err
		}
		// Versions of the reference plugin differ in what they make for all.
		lacking := filter(w.rules(f), func(r rule) bool { return isHeld || !r.common })
		where := "table " + w.use.table + " of " + f.program
		for _, t := range tables {
			l, err := t.list(ctx)
			if err != nil {
				return err
			}
			lacking, where = without(lacking, l.rules), t.String()
		}
		if len(lacking) > 0 {
			return plugin.Errorf("something removed it after ADD, such as a reload of the host's firewall: restart the container; "+
				fmt.Sprintf("see `%s-save -t %s`", f.program, w.use.table), "%s lacks the rule of %s: %s", where, key, lacking[0])
		}
	}
	if w.localhost == "" {
		return nil
	}
	return checkLocalhost(w.localhost, isHeld)
}

// GC removes what attachments of a network have for a use and are not valid: what they own, and containers' chains whose
// rules name the network.
func (b *Backend) GC(ctx context.Context, u Use, network string, valid []plugin.Key) error {
	list, err := readOwners()
	if err != nil {
		return err
	}
	rm := removal{use: u, network: network, known: map[string]bool{}}
	for _, chain := range u.chains(valid...) {
		rm.known[chain] = true
	}
	for _, h := range list {
		if h.use == u.name && h.key.Network == network && !slices.Contains(valid, h.key) {
			rm.keys = append(rm.keys, h.key)
		}
	}
	_, err = b.remove(ctx, rm)
	return err
}

// removal is what is to be taken away: what attachments have for a use, but for rules that others have too. What the
// reference plugins made is known by the containers' chains and by addresses.
type removal struct {
	use      Use
	keys     []plugin.Key
	hint     []netip.Prefix  // what the attachment had, if a runtime says so,
	rules    []rule          // and the rules for that in chains that all share
	network  string          // all containers' chains of it go, but for those that are known; "" for none
	known    map[string]bool // containers' chains that stay
	isLocked bool            // by the caller
}

// remove takes it away, and returns the rules that went from containers' chains. It runs no program and takes no lock if
// there is nothing.
func (b *Backend) remove(ctx context.Context, rm removal) (removed []rule, err error) {
	list, err := readOwners()
	if err != nil {
		return nil, err
	}
	isMine := func(h holding) bool { return h.use == rm.use.name && slices.Contains(rm.keys, h.key) }
	mine, rest := owners(filter(list, isMine)), owners(filter(list, func(h holding) bool { return !isMine(h) }))
	tables, err := b.tablesFor(ctx, rm, mine)
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
	var errs []error
	for _, t := range tables {
		var gone []rule
		errs = append(errs, t.edit(ctx, func(l *listing) (lines []string, err error) {
			lines, gone = rm.plan(t.family, l, mine, rest)
			return lines, nil
		}))
		removed = append(removed, gone...)
	}
	if err := errors.Join(errs...); err != nil || len(mine) == 0 {
		return removed, err
	}
	return removed, rest.write()
}

// tablesFor returns those in which there may be something to remove.
func (b *Backend) tablesFor(ctx context.Context, rm removal, mine owners) (list []*table, err error) {
	for _, f := range families() {
		isHeld, chains := len(in(f, mine.rules())) > 0, rm.use.chains(rm.keys...)
		if rm.use.prefixes == nil {
			chains = []string{forwardChain, stage1}
			if !isHeld && len(in(f, rm.rules)) == 0 {
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

func (rm removal) isUnknown(chain string) bool { return rm.use.isChain(chain) && !rm.known[chain] }

// plan returns the lines that remove it, and the rules of containers' chains that go.
func (rm removal) plan(f *family, l *listing, mine, rest owners) (lines []string, gone []rule) {
	c := change{own: rm.use.chains(rm.keys...), gone: without(append(mine.rules(), rm.rules...), rest.rules())}
	for _, r := range l.rules {
		isOf := rm.network != "" && strings.Contains(r.spec, `name: \"`+rm.network+`\" id: `) // as a comment has it
		for _, chain := range []string{r.chain, r.target()} {
			if isOf && rm.isUnknown(chain) {
				c.own = append(c.own, chain)
			}
		}
	}
	c.wanted = rest.about(f, filter(c.own, func(chain string) bool { return l.chains[chain] }))
	if rm.use.name == Masquerading.name && len(mine)+len(c.wanted) == 0 && len(rm.hint) > 0 {
		// The reference plugins masquerade all interfaces of a container by one chain; older ones name the network's prefix
		// with the address.
		others := filter(l.jumpsTo(c.own[0]), func(r rule) bool {
			source, err := netip.ParsePrefix(option(words(r.spec), "-s"))
			return err != nil || !slices.ContainsFunc(rm.hint, func(p netip.Prefix) bool { return source.Contains(p.Addr()) })
		})
		if len(others) > 0 {
			c.wanted = append(l.inChain(c.own[0]), others...)
		}
	}
	for _, chain := range c.own {
		gone = append(gone, without(l.inChain(chain), c.wanted)...)
	}
	return c.lines(l), gone
}
