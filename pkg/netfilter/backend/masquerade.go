package backend

import (
	"context"
	"errors"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddMasquerade is netfilter.Masquerader's with the backend that is wished for.
func AddMasquerade(ctx context.Context, w Wish, key plugin.Key, addrs []netip.Prefix) error {
	return w.one(
		func(t *nft.Table) error { return t.AddMasquerade(ctx, key, addrs) },
		func(b *iptables.Backend) error { return b.AddMasquerade(ctx, key, addrs) })
}

// DelMasquerade is netfilter.Masquerader's in all backends.
func DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	return errors.Join(
		inNFTables(func(t *nft.Table) error { return t.DelMasquerade(ctx, key, hint) }),
		reference.DelMasquerade(ctx, key),
		iptables.New().DelMasquerade(ctx, key, hint))
}

// CheckMasquerade is netfilter.Masquerader's with the backend that is wished
// for, or with the other one if nothing is said: what an attachment has may be
// from before an upgrade.
func CheckMasquerade(ctx context.Context, w Wish, key plugin.Key, addrs []netip.Prefix) error {
	return w.either(
		func(t *nft.Table) error { return t.CheckMasquerade(ctx, key, addrs) },
		func(b *iptables.Backend) error { return b.CheckMasquerade(ctx, key, addrs) })
}

// GCMasquerade is netfilter.Masquerader's in all backends.
func GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	return errors.Join(
		inNFTables(func(t *nft.Table) error { return t.GCMasquerade(ctx, network, valid) }),
		reference.GCMasquerade(ctx, network, valid),
		iptables.New().GCMasquerade(ctx, network, valid))
}
