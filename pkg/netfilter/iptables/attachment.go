package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// wants is what an attachment is to have.
type wants struct {
	chains []string // that others use too
	shared []rule   // that others need too, and that stay
	own    []rule

	free  func(*table) error // makes room in a table, unless it is nil
	after func() error       // is done when the rules are in place, unless it is nil
}

func (w wants) rules(f *family) []rule { return in(f, slices.Concat(w.shared, w.own)) }

// hold gives an attachment what it is to have, in place of what it had.
func (b *Backend) hold(ctx context.Context, u use, key plugin.Key, w wants) error {
	if len(w.shared)+len(w.own) == 0 {
		_, err := b.release(ctx, removal{use: u, keys: []plugin.Key{key}})
		return err
	}
	return locked(ctx, func() error { return b.holdLocked(ctx, u, key, w) })
}

func (b *Backend) holdLocked(ctx context.Context, u use, key plugin.Key, w wants) (err error) {
	o := owner{u.name, key}
	list, err := readOwners()
	if err != nil {
		return err
	}
	before := list.of(o)
	var tables []*table
	for _, f := range families() {
		if len(w.rules(f))+len(in(f, before)) == 0 {
			continue
		}
		t, err := plainTable(f, u.table)
		if err == nil && w.free != nil {
			err = w.free(t)
		}
		if err != nil {
			return err
		}
		tables = append(tables, t)
	}
	if list, err = readOwners(); err != nil { // of whom room was made may be gone
		return err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("remove the rules of iptables again", func(ctx context.Context) error {
		_, err := b.releaseLocked(ctx, removal{use: u, keys: []plugin.Key{key}})
		return err
	})
	for _, t := range tables {
		err := t.edit(ctx, func(l *listing) ([]string, error) {
			foreign := ids(filter(list.unheld(in(t.family, w.own)), func(r rule) bool { return r.common && l.has(r) }))
			list = list.with(o, t.family, filter(in(t.family, w.own), func(r rule) bool { return !foreign[r.id()] }))
			if err := list.write(); err != nil {
				return nil, err
			}
			c := change{own: u.chains(key), shared: in(t.family, w.shared), gone: list.unheld(in(t.family, before))}
			if len(w.rules(t.family)) > 0 {
				c.chains = w.chains
			}
			container, _ := list.split(func(other owner) bool {
				return other.use == u.name && other.key.Network == key.Network && other.key.ContainerID == key.ContainerID
			})
			c.wanted = in(t.family, container.rules())
			return c.lines(l), nil
		})
		if err != nil {
			return err
		}
	}
	if w.after == nil {
		return nil
	}
	return w.after()
}

// removal is what is to be taken away: what attachments have, but for rules that
// others have too. What the reference plugins made is known by the containers' chains
// and by addresses.
type removal struct {
	use    use
	keys   []plugin.Key
	hint   []netip.Prefix          // what the attachment had, if a runtime says so
	chains func(*listing) []string // more containers' chains, unless it is nil
}

// release takes it away, and returns the rules that went. It runs no program and takes
// no lock if there is nothing.
func (b *Backend) release(ctx context.Context, rm removal) (removed []rule, err error) {
	list, err := readOwners()
	if err != nil {
		return nil, err
	}
	mine, _ := list.split(rm.has)
	tables, err := rm.tables(ctx, b, mine)
	if err != nil || len(mine)+len(tables) == 0 {
		return nil, err
	}
	err = locked(ctx, func() error {
		removed, err = b.releaseLocked(ctx, rm)
		return err
	})
	return removed, err
}

func (b *Backend) releaseLocked(ctx context.Context, rm removal) (removed []rule, err error) {
	list, err := readOwners()
	if err != nil {
		return nil, err
	}
	mine, rest := list.split(rm.has)
	tables, err := rm.tables(ctx, b, mine)
	if err != nil {
		return nil, err
	}
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

func (rm removal) has(o owner) bool { return o.use == rm.use.name && slices.Contains(rm.keys, o.key) }

// tables returns those in which there may be something to remove.
func (rm removal) tables(ctx context.Context, b *Backend, mine owners) (list []*table, err error) {
	for _, f := range families() {
		isHeld := len(in(f, mine.rules())) > 0
		chains := rm.own()
		switch {
		case rm.chains != nil:
			chains = nil // any
		case len(chains) == 0:
			chains = []string{forwardChain, stage1}
			if !isHeld && len(rm.hinted(f)) == 0 {
				continue
			}
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
		if names := rm.use.chains(key); len(names) > 0 && !slices.Contains(chains, names[0]) {
			chains = append(chains, names...)
		}
	}
	return chains
}

// hinted returns the rules in shared chains that the addresses of a hint had.
func (rm removal) hinted(f *family) (rules []rule) {
	for _, p := range rm.hint {
		if familyOf(p.Addr()) == f && rm.use.table == filterTable {
			rules = append(rules, addressRules(p.Addr())...)
		}
	}
	return rules
}

// plan returns the lines that remove it, and those of the rules that no owner has had.
func (rm removal) plan(f *family, l *listing, mine, rest owners) (lines []string, unknown []rule) {
	c := change{own: rm.own(), gone: rest.unheld(slices.Concat(mine.rules(), rm.hinted(f)))}
	if rm.chains != nil {
		c.own = append(c.own, rm.chains(l)...)
	}
	for _, r := range in(f, rest.rules()) {
		if slices.ContainsFunc([]string{r.chain, r.target()}, func(chain string) bool { return slices.Contains(c.own, chain) && l.chains[chain] }) {
			c.wanted = append(c.wanted, r)
		}
	}
	if jumps, spared := rm.spare(l); len(mine) == 0 && spared {
		c = change{gone: rest.unheld(jumps)}
	}
	for _, chain := range c.own {
		unknown = append(unknown, rest.unheld(l.inChain(chain))...)
	}
	return c.lines(l), unknown
}

// spare is for a container of which a hint tells one of several masqueraded interfaces:
// it returns the jumps that are that one's. Older versions of the reference plugins name
// the network's prefix with the address.
func (rm removal) spare(l *listing) (jumps []rule, spared bool) {
	if rm.use.comment != "" || len(rm.hint) == 0 || rm.use.table != natTable {
		return nil, false
	}
	all := l.jumpsTo(rm.own()[0])
	jumps = filter(all, func(r rule) bool {
		source, err := netip.ParsePrefix(option(words(r.spec), "-s"))
		return err == nil && slices.ContainsFunc(rm.hint, func(p netip.Prefix) bool { return source.Contains(p.Addr()) })
	})
	return jumps, len(jumps) < len(all)
}

// check makes sure that an attachment has what it is to have, in either flavour. It
// changes nothing.
func (b *Backend) check(ctx context.Context, u use, key plugin.Key, w wants) error {
	for _, f := range families() {
		lack, where := w.rules(f), "table "+u.table+" of "+f.program
		tables, err := b.tables(ctx, f, u.table, false)
		if err != nil {
			return err
		}
		for _, t := range tables {
			l, err := t.list(ctx)
			if err != nil {
				return err
			}
			if missing := filter(w.rules(f), func(r rule) bool { return !l.has(r) }); len(missing) < len(lack) {
				lack, where = missing, t.String()
			}
		}
		if len(lack) > 0 {
			return plugin.Errorf("something removed it after ADD, such as a reload of the host's firewall: restart the container; "+
				fmt.Sprintf("see `iptables-save -t %s`", u.table), "%s lacks the rule of %s: %s", where, key, lack[0])
		}
	}
	return nil
}

// collect removes what attachments of a network have for a use and are not valid:
// what they own, and containers' chains that nobody owns and whose rules name the network.
func (b *Backend) collect(ctx context.Context, u use, network string, valid []plugin.Key) error {
	list, err := readOwners()
	if err != nil {
		return err
	}
	rm := removal{use: u}
	known := map[string]bool{}
	for _, key := range valid {
		for _, chain := range u.chains(key) {
			known[chain] = true
		}
	}
	for _, h := range list {
		if h.use != u.name {
			continue
		}
		if h.key.Network == network && !slices.Contains(valid, h.key) && !slices.Contains(rm.keys, h.key) {
			rm.keys = append(rm.keys, h.key)
		}
		known[h.rule.chain] = true
	}
	if len(u.prefixes) > 0 {
		rm.chains = func(l *listing) (chains []string) {
			for chain := range l.chains {
				if u.isChain(chain) && !known[chain] && slices.ContainsFunc(append(l.inChain(chain), l.jumpsTo(chain)...), func(r rule) bool { return u.namesNetwork(r, network) }) {
					chains = append(chains, chain)
				}
			}
			return chains
		}
	}
	_, err = b.release(ctx, rm)
	return err
}

// namesNetwork reports whether a rule's comment says that it is a network's. Earlier
// versions of the reference plugin had rules with "snat".
func (u use) namesNetwork(r rule, network string) bool {
	comment := option(words(r.spec), "--comment")
	return slices.ContainsFunc([]string{"", "dnat ", "snat "}, func(kind string) bool {
		return strings.HasPrefix(comment, kind+`name: "`+network+`" id: `)
	})
}
