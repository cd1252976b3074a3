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

// Available reports whether the host has the program that changes rules. Whether the kernel has what they need is
// only seen by adding one.
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
		o := owner{w.use.name, key}
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
			p, err := plainProgram(f)
			t := &table{family: f, name: w.use.table, program: p}
			if err == nil && w.free != nil {
				err = w.free(ctx, b, t)
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
		if list, err = readOwners(); err != nil { // those of whom room was made are gone
			return err
		}
		for _, t := range tables {
			err := t.edit(ctx, func(l *listing) ([]string, error) {
				own := in(t.family, w.own)
				foreign := filter(without(own, list.rules()), func(r rule) bool { return r.common && l.has(r) })
				list = list.with(o, t.family, without(own, foreign))
				if err := list.write(); err != nil {
					return nil, err
				}
				c := change{own: w.use.chains(key), shared: in(t.family, w.shared), gone: without(in(t.family, before), list.rules())}
				container, _ := list.split(func(other owner) bool { return other.isOf(w.use, key.Network) && other.key.ContainerID == key.ContainerID })
				c.wanted = in(t.family, container.rules())
				if len(w.rules(t.family)) > 0 {
					c.chains = w.chains
				}
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
	})
}

// Del takes away what an attachment has for a use, and returns the published ports among it. hint is what it had, if
// a runtime says so: only that tells of some rules of the reference plugins whose they are.
func (b *Backend) Del(ctx context.Context, u Use, key plugin.Key, hint []netip.Prefix) (maps []netfilter.PortMap, err error) {
	removed, err := b.remove(ctx, removal{use: u, keys: []plugin.Key{key}, hint: hint})
	for _, r := range removed {
		if m, ok := portMapOf(r); ok {
			maps = append(maps, m)
		}
	}
	return maps, err
}

// Check makes sure that an attachment has what it is to have, in either flavour. It changes nothing.
func (b *Backend) Check(ctx context.Context, key plugin.Key, w Wants) error {
	list, err := readOwners()
	if err = errors.Join(w.err, err); err != nil {
		return err
	}
	isHeld := len(list.of(owner{w.use.name, key})) > 0
	for _, f := range families() {
		// Versions of the reference plugin differ in what they make for all.
		wanted := filter(w.rules(f), func(r rule) bool { return isHeld || !r.common })
		lacking, where := wanted, "table "+w.use.table+" of "+f.program
		tables, err := b.tables(ctx, f, w.use.table, false)
		if err != nil {
			return err
		}
		for _, t := range tables {
			l, err := t.list(ctx)
			if err != nil {
				return err
			}
			if missing := without(wanted, l.rules); len(missing) < len(lacking) {
				lacking, where = missing, t.String()
			}
		}
		if len(lacking) > 0 {
			return plugin.Errorf("something removed it after ADD, such as a reload of the host's firewall: restart the container; "+
				fmt.Sprintf("see `%s-save -t %s`", f.program, w.use.table), "%s lacks the rule of %s: %s", where, key, lacking[0])
		}
	}
	if w.inspect == nil {
		return nil
	}
	return w.inspect(isHeld)
}

// GC removes what attachments of a network have for a use and are not valid: what they own, and containers' chains
// that nobody owns and whose rules name the network.
func (b *Backend) GC(ctx context.Context, u Use, network string, valid []plugin.Key) error {
	list, err := readOwners()
	if err != nil {
		return err
	}
	stale, rest := list.split(func(o owner) bool { return o.isOf(u, network) && !slices.Contains(valid, o.key) })
	rm := removal{use: u}
	for _, h := range stale {
		rm.keys = append(rm.keys, h.key)
	}
	known := map[string]bool{}
	for _, h := range rest {
		known[h.rule.chain] = true
	}
	for _, key := range valid {
		for _, chain := range u.chains(key) {
			known[chain] = true
		}
	}
	if u.prefixes != nil {
		comment := `name: \"` + network + `\" id: ` // as a rule has it
		rm.unowned = func(l *listing) (chains []string) {
			for _, r := range l.rules {
				for _, chain := range []string{r.chain, r.target()} {
					if u.isChain(chain) && !known[chain] && strings.Contains(r.spec, comment) {
						chains = append(chains, chain)
					}
				}
			}
			return chains
		}
	}
	_, err = b.remove(ctx, rm)
	return err
}
