package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// lockFile is locked by whoever changes rules, from the look at what is there until the change is made.
const lockFile = "/run/cnibox/iptables.lock"

// Backend is the backend on iptables, in the network namespace of the thread that calls it.
type Backend struct {
	conn *nft.Conn // nil if there is nothing of iptables-nft
}

// On returns the backend, which asks nf_tables over a connection. That is nil if the caller knows that none of
// iptables-nft's tables is there.
func On(conn *nft.Conn) *Backend { return &Backend{conn} }

// Available reports whether the host has the programs that change rules, and they run. Whether the kernel has what rules need
// is only seen by adding one.
func (*Backend) Available() error {
	t, err := plainTable(&ipv4, filterTable)
	if err != nil {
		return err
	}
	if _, err := iptables.New(iptables.Path(strings.TrimSuffix(t.program, "-restore"))); err != nil {
		return fmt.Errorf("iptables: %w", err)
	}
	return nil
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
	return state.Locked(ctx, lockFile, func() (err error) {
		before, err := readOwned()
		if err != nil {
			return err
		}
		mine := removal{use: w.use, keys: map[plugin.Key]bool{key: true}}
		replaced := removal{use: w.use, keys: map[plugin.Key]bool{key: true}} // and attachments that are gone and have the ports
		own := w.own                                                          // but what somebody else has made
		var tables []*table
		for _, f := range families() {
			if len(w.rules(f))+len(in(f, filter(before, mine.takes))) == 0 {
				continue // the kernel may lack it
			}
			t, err := plainTable(f, w.use.table)
			if err != nil {
				return err
			}
			if err := t.read(ctx); err != nil {
				return err
			}
			gone, err := evict(before, t, key, w.ports)
			if err != nil {
				return err
			}
			foreign := filter(without(own, before), func(r rule) bool { return r.common && t.has(r) })
			own = without(own, foreign)
			for _, k := range gone {
				replaced.keys[k] = true
			}
			tables = append(tables, t)
		}
		var undo plugin.Undo
		defer undo.OnError(ctx, &err)
		undo.Push("remove the rules of iptables again", func(ctx context.Context) error {
			_, err := mine.from(ctx, tables)
			return err
		})
		// What is evicted stays written down for a family of which no table is edited.
		after := filter(before, func(r rule) bool {
			isEdited := slices.ContainsFunc(tables, func(t *table) bool { return t.family == r.family })
			return !isEdited || !replaced.takes(r)
		})
		for _, r := range own {
			r.owner = owner{w.use.name, key}
			after = append(after, r)
		}
		if err := writeOwned(after); err != nil {
			return err
		}
		for _, t := range tables {
			c := replaced.change(t, before, after)
			c.chains, c.shared, c.wanted = w.chains, in(t.family, w.shared), append(c.wanted, in(t.family, own)...)
			if err := t.edit(ctx, c); err != nil {
				return err
			}
		}
		if w.localhost == "" {
			return nil
		}
		return allowLocalhost(ctx, w.localhost)
	})
}

// Del takes away what an attachment has for a use, and returns the published ports among it. hint is what it had, if a
// runtime says so: the reference plugin's rules for addresses do not say whose they are.
func (b *Backend) Del(ctx context.Context, u Use, key plugin.Key, hint []netip.Prefix) ([]netfilter.PortMap, error) {
	rm := removal{use: u, keys: map[plugin.Key]bool{key: true}}
	for _, p := range hint {
		if u.prefixes == nil {
			rm.hint = append(rm.hint, addressRules(p.Addr())...)
		}
	}
	return b.remove(ctx, rm)
}

// GC removes what attachments of a network have for a use and are not valid: what they own, and containers' chains whose
// rules name the network.
func (b *Backend) GC(ctx context.Context, u Use, network string, valid []plugin.Key) error {
	owned, err := readOwned()
	if err != nil {
		return err
	}
	rm := removal{use: u, network: network, keys: map[plugin.Key]bool{}, known: setOf(u.chains(valid...))}
	isValid := map[plugin.Key]bool{}
	for _, k := range valid {
		isValid[k] = true
	}
	for _, r := range owned {
		if r.owner.use == u.name && r.owner.key.Network == network && !isValid[r.owner.key] {
			rm.keys[r.owner.key] = true
		}
	}
	_, err = b.remove(ctx, rm)
	return err
}

// Check makes sure that an attachment has what it is to have, in either flavour. It changes nothing.
func (b *Backend) Check(ctx context.Context, key plugin.Key, w Wants) error {
	if w.err != nil {
		return w.err
	}
	owned, err := readOwned()
	if err != nil {
		return err
	}
	isHeld := slices.ContainsFunc(owned, func(r rule) bool { return r.owner == owner{w.use.name, key} })
	for _, f := range families() {
		tables, err := b.tables(ctx, f, w.use.table, false, append(w.use.chains(key), w.chains...))
		if err != nil {
			return err
		}
		// Versions of the reference plugin differ in what they make for all.
		lacking := filter(w.rules(f), func(r rule) bool { return isHeld || !r.common })
		where := "table " + w.use.table + " of " + f.program
		for _, t := range tables {
			where = t.String()
			if lacking, err = t.lacking(ctx, lacking...); err != nil {
				return err
			}
		}
		if len(lacking) > 0 {
			return plugin.Errorf("something removed it after ADD, such as a reload of the host's firewall: restart the container; "+
				fmt.Sprintf("see `%s-save -t %s`", f.program, w.use.table), "%s lacks the rule of %s: %s", where, key, lacking[0])
		}
	}
	if w.localhost == "" {
		return nil
	}
	return checkLocalhost(ctx, w.localhost, isHeld)
}
