// Package netfilter has what attachments hold of the host's packet filter: Masquerade, PortMaps, Forward and SpoofCheck. Each is a Feature, which
// says what it is in nftables, in iptables, and in what the reference plugins left in nftables.
//
// An ADD makes things in one of the backends: the one that is configured, else iptables if something on the host or in the configuration
// can't do without it, else nftables, else iptables. CHECK looks there, and if nothing is configured in the other one too: what an
// attachment has may be from before an upgrade. The things that a DEL or GC removes may have been made with another configuration, or by the
// reference plugins; so it looks in all of them. Where nothing is, that is one message of nf_tables, a look for the file of iptables' owners, and one
// for tables of iptables-legacy.
package netfilter

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/conntrack"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Session is what calls for many attachments in a row share: it is in their requests.
type Session struct {
	Listings *iptables.Listings
	Batch    *nft.Batch // nil: each repairs for itself
}

// sessionOf returns a request's, or one in which nothing is shared.
func sessionOf(r *plugin.Request) Session {
	if s, is := r.Filter.(*Session); is {
		return *s
	}
	return Session{}
}

// Del takes back what the request's attachment has of some things, whatever they ask for, at the price of one look at the host. It is found
// by the key alone, and what is not found is gone, and no error. hint is the addresses that a runtime says the attachment had, nil if it says
// nothing; they only matter for what the reference plugins made, which does not always tell whose it is.
func Del(ctx context.Context, r *plugin.Request, hint []netip.Prefix, features ...Feature) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	h := host{r, conn, map[nftables.Table]bool{}}
	if err := h.look(features); err != nil {
		return err
	}
	var errs []error
	for _, t := range features {
		errs = append(errs, h.del(ctx, t, hint))
	}
	return errors.Join(errs...)
}

// Stores returns where attachments hold some things.
func Stores(r *plugin.Request, features ...Feature) (list []plugin.Store) {
	for _, t := range features {
		list = append(list, t.stores(r)...)
	}
	return list
}

// host is the packet filter for one DEL, which needs but one connection to it.
type host struct {
	*plugin.Request
	conn  *nft.Conn
	there map[nftables.Table]bool
}

// look asks which tables of some things are there, with one message for all of them. Nearly always it is our own at most, and then nobody
// need look into the others. A kernel without nftables has none.
func (h host) look(features []Feature) error {
	var tables []nftables.Table
	for _, t := range features {
		tables = append(tables, t.tables()...)
	}
	answers, err := h.conn.HasTables(tables...)
	for i, t := range tables {
		h.there[t] = err == nil && answers[i]
	}
	return err
}

// has reports whether one of some tables is there.
func (h host) has(tables ...nftables.Table) bool {
	return slices.ContainsFunc(tables, func(t nftables.Table) bool { return h.there[t] })
}

// del takes back what there is of a thing. Rules of iptables that accept what nftables marks stay: they are for all, and accept nothing else.
// If firewalld does not let go of a source, it may never do so, and that must not keep the container's link and addresses: the record has it, for GC.
func (h host) del(ctx context.Context, t Feature, hint []netip.Prefix) error {
	var ports []spec.PortMap
	var errs []error
	if h.has(t.elements.Table) {
		list, err := h.conn.Del(ctx, h.Key, t.elements.Purpose)
		ports, errs = list, append(errs, err)
	}
	if t.kind != "" {
		b := iptables.On(nil, nil) // which asks nf_tables for nothing
		if h.has(t.kind.Tables()...) {
			b = iptables.On(h.conn, nil)
		}
		others, err := b.Del(ctx, t.kind, h.Key, hint)
		ports, errs = append(ports, others...), append(errs, err)
	}
	if t.leftovers != nil {
		if l := t.leftovers(h.Request); h.has(l.Tables()...) {
			errs = append(errs, l.Del(ctx, h.conn, hint))
		}
	}
	if t.zone != nil {
		h.WarnOf(t.zone.Del(ctx, h.Key, hint))
	}
	return errors.Join(append(errs, conntrack.FlushWithdrawn(ctx, ports))...)
}

// leftover is what the reference plugins made.
type leftover interface {
	plugin.Store
	Tables() []nftables.Table
	LeadsTo(ctx context.Context, c *nft.Conn, addrs []netip.Prefix) (bool, error)
	Del(ctx context.Context, c *nft.Conn, hint []netip.Prefix) error
}

// isLeftover reports whether the reference plugins' rules are there for all of some addresses.
func isLeftover(ctx context.Context, conn *nft.Conn, l leftover, addrs []netip.Prefix) bool {
	there, err := conn.HasTables(l.Tables()...)
	if err != nil || !slices.Contains(there, true) {
		return false
	}
	leads, err := l.LeadsTo(ctx, conn, addrs)
	return err == nil && leads
}
