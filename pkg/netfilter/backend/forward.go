package backend

import (
	"context"
	"errors"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddForward is netfilter.Forwarder's with the backend that is wished for.
func AddForward(ctx context.Context, w Wish, key plugin.Key, f netfilter.Forward) error {
	return w.one(
		func(t *nft.Table) error { return t.AddForward(ctx, key, f) },
		func(b *iptables.Backend) error { return b.AddForward(ctx, key, f) })
}

// DelForward is netfilter.Forwarder's in all backends.
func DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	h, err := look(iptables.FilterTables())
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.inNFTables(func(t *nft.Table) error { return t.DelForward(ctx, key, hint) }),
		h.iptables(iptables.FilterTables()).DelForward(ctx, key, hint))
}

// CheckForward is netfilter.Forwarder's with the backend that is wished for, or
// with the other one if nothing is said: what an attachment has may be from
// before an upgrade.
func CheckForward(ctx context.Context, w Wish, key plugin.Key, f netfilter.Forward) error {
	return w.either(
		func(t *nft.Table) error { return t.CheckForward(ctx, key, f) },
		func(b *iptables.Backend) error { return b.CheckForward(ctx, key, f) })
}

// GCForward is netfilter.Forwarder's in all backends.
func GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.inNFTables(func(t *nft.Table) error { return t.GCForward(ctx, network, valid) }),
		iptables.New().GCForward(ctx, network, valid))
}

// ForwardAvailable is Available for forwarding, which needs other things of the
// kernel.
func ForwardAvailable(w Wish) error {
	return w.one((*nft.Table).ForwardAvailable, (*iptables.Backend).Available)
}
