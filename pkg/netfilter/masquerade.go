package netfilter

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Masquerade makes packets from addresses leave with the host's own address unless they go to the address's own network or are
// multicast. It takes over an address that another attachment held before.
type Masquerade struct{ Addrs []netip.Prefix }

// Add gives it to an attachment, in place of what that has.
func (m Masquerade) Add(ctx context.Context, w Wish, key plugin.Key) error {
	return add(ctx, w, key, m)
}

// Check compares what is there with what Add makes. What the reference plugins made will do.
func (m Masquerade) Check(ctx context.Context, w Wish, key plugin.Key) error {
	err := check(ctx, w, key, m)
	if err != nil && w.Value != IPTables && isLeftover(ctx, reference.MasqueradeRules{Request: &plugin.Request{Key: key}}, m.Addrs) {
		return nil
	}
	return err
}

// Repair gives the attachment what is missing of it.
func (m Masquerade) Repair(ctx context.Context, w Wish, key plugin.Key) error {
	return repair(ctx, w, key, m)
}

// Available reports whether the host has what Add needs.
func (m Masquerade) Available(w Wish) error { return available(w, m) }

// Explain says in a sentence what masquerades, and why.
func (m Masquerade) Explain(w Wish) string { return explain("masquerades", w, m) }

func (Masquerade) purpose() nft.Purpose { return nft.Masquerading }

func (m Masquerade) addElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	return c.Add(ctx, key, nft.ToMasquerade(m.Addrs))
}

func (m Masquerade) repairElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	return c.Repair(ctx, key, nft.ToMasquerade(m.Addrs))
}

func (m Masquerade) checkElements(_ context.Context, c *nft.Conn, key plugin.Key) error {
	return c.Check(key, nft.ToMasquerade(m.Addrs))
}

func (m Masquerade) rules(key plugin.Key) iptables.Rules {
	return iptables.MasqueradeRules(key, m.Addrs)
}

func (Masquerade) tables() []nftables.Table {
	return slices.Concat([]nftables.Table{nft.Masquerading.Table}, iptables.Masquerading.Tables(), reference.MasqueradeRules{}.Tables())
}

func (Masquerade) del(ctx context.Context, h host, hint []netip.Prefix) error {
	_, err := h.delFilter(ctx, nft.Masquerading, iptables.Masquerading, hint)
	return errors.Join(err, h.delLeftover(ctx, reference.MasqueradeRules{Request: h.Request}, hint))
}

func (Masquerade) stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{nft.Masquerading, nft.Unused{}, iptables.Masquerading, reference.MasqueradeRules{Request: r}}
}
