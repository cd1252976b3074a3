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
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// PortMaps publishes ports of containers on the host.
type PortMaps spec.PortNeeds

// Add gives them to the request's attachment, in place of what that has. It fails if another attachment has one of them, with an error that
// names it, or takes the port over if that one is gone. It also cuts connections without a connection's end, such as UDP's, that were made
// before and would go on to lead elsewhere.
func (p PortMaps) Add(ctx context.Context, w Wish, r *plugin.Request) error {
	if err := add(ctx, w, r.Key, p); err != nil {
		return err
	}
	if err := conntrack.FlushPublished(ctx, p.Maps); err != nil {
		return errors.Join(err, Del(context.WithoutCancel(ctx), r, nil, p))
	}
	return nil
}

// Check compares what is there with what Add makes. What the reference plugin made will do.
func (p PortMaps) Check(ctx context.Context, w Wish, key plugin.Key) error {
	err := check(ctx, w, key, p)
	if err == nil || w.Value == IPTables {
		return err
	}
	var to []netip.Prefix
	for _, m := range p.Maps {
		to = append(to, result.Single(m.Container.Addr()))
	}
	if isLeftover(ctx, reference.PortRules{Request: &plugin.Request{Key: key}}, to) {
		return nil
	}
	return err
}

// Repair gives the attachment what is missing of them. Connections that lead to the container stay.
func (p PortMaps) Repair(ctx context.Context, w Wish, key plugin.Key) error {
	if err := repair(ctx, w, key, p); err != nil {
		return err
	}
	return conntrack.FlushPublished(ctx, p.Maps)
}

// Available reports whether the host has what Add needs, as far as that can be told before there are any ports.
func (p PortMaps) Available(w Wish) error {
	err := available(w, p)
	if w.NFTables != "" {
		err = errors.Join(err, nft.CheckConditions(spec.PortNeeds(p)))
	}
	return err
}

// Explain says in a sentence what publishes ports, and why.
func (p PortMaps) Explain(w Wish) string { return explain("publishes ports", w, p) }

func (PortMaps) purpose() nft.Purpose { return nft.Publishing }

func (p PortMaps) addElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	return c.Add(ctx, key, nft.ToPublish(spec.PortNeeds(p)))
}

func (p PortMaps) repairElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	return c.Repair(ctx, key, nft.ToPublish(spec.PortNeeds(p)))
}

func (p PortMaps) checkElements(_ context.Context, c *nft.Conn, key plugin.Key) error {
	return c.Check(key, nft.ToPublish(spec.PortNeeds(p)))
}

func (p PortMaps) rules(key plugin.Key) iptables.Rules {
	return iptables.PortMapRules(key, spec.PortNeeds(p))
}

func (PortMaps) tables() []nftables.Table {
	return slices.Concat([]nftables.Table{nft.Publishing.Table}, iptables.PortMapping.Tables(), reference.PortRules{}.Tables())
}

// del also cuts connections without an end to the container.
func (PortMaps) del(ctx context.Context, h host, hint []netip.Prefix) error {
	ports, err := h.delFilter(ctx, nft.Publishing, iptables.PortMapping, hint)
	return errors.Join(err, h.delLeftover(ctx, reference.PortRules{Request: h.Request}, hint), conntrack.FlushWithdrawn(ctx, ports))
}

func (PortMaps) stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{nft.Publishing, nft.Unused{}, iptables.PortMapping, reference.PortRules{Request: r}}
}
