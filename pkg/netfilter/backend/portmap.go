package backend

import (
	"context"
	"errors"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/conntrack"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddPortMaps is netfilter.PortMapper's with the backend that is wished for. It
// also cuts connections without a connection's end, such as UDP's, that were
// made before and would go on to lead elsewhere.
func AddPortMaps(ctx context.Context, w Wish, key plugin.Key, ports netfilter.PortMaps) error {
	err := w.one(
		func(t *nft.Conn) error { return t.AddPortMaps(ctx, key, ports) },
		func(b *iptables.Backend) error { return b.Add(ctx, key, iptables.PortMaps(key, ports)) })
	if err != nil {
		return err
	}
	if err := conntrack.FlushPublished(ctx, ports.Maps); err != nil {
		return errors.Join(err, DelPortMaps(context.WithoutCancel(ctx), key, nil))
	}
	return nil
}

// DelPortMaps is netfilter.PortMapper's in all backends. Connections to the
// container that have no end of their own are cut.
func DelPortMaps(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	h, err := look(reference.HostPortTables(), iptables.PortMapping.Tables())
	if err != nil {
		return err
	}
	defer h.close()
	var removed []netfilter.PortMap
	also := func(maps []netfilter.PortMap, err error) error {
		removed = append(removed, maps...)
		return err
	}
	err = errors.Join(
		h.inNFT(func(t *nft.Conn) error { return also(t.DelPortMaps(ctx, key, hint)) }),
		h.inReference(reference.HostPortTables(), func(c *nft.Conn) error { return reference.DelPortMaps(ctx, c, key, hint) }),
		also(h.iptables(iptables.PortMapping).Del(ctx, iptables.PortMapping, key, nil)))
	return errors.Join(err, conntrack.FlushWithdrawn(ctx, removed))
}

// CheckPortMaps is netfilter.PortMapper's with the backend that is wished for,
// or with the other one if nothing is said: what an attachment has may be from
// before an upgrade.
func CheckPortMaps(ctx context.Context, w Wish, key plugin.Key, ports netfilter.PortMaps) error {
	return w.either(
		func(t *nft.Conn) error { return t.CheckPortMaps(ctx, key, ports) },
		func(b *iptables.Backend) error { return b.Check(ctx, key, iptables.PortMaps(key, ports)) })
}

// GCPortMaps is netfilter.PortMapper's in all backends.
func GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.inNFT(func(t *nft.Conn) error { return t.GCPortMaps(ctx, network, valid) }),
		h.inNFT(func(c *nft.Conn) error { return reference.GCPortMaps(ctx, c, valid) }),
		iptables.On(h.conn).GC(ctx, iptables.PortMapping, network, valid))
}

// CheckConditions has the backend that conditions are for say whether they are
// right, as far as it can before there are any ports.
func CheckConditions(ctx context.Context, w Wish, conditions4, conditions6 []string) error {
	if w.NFTables == "" {
		return nil
	}
	return nft.CheckConditions(ctx, conditions4, conditions6)
}
