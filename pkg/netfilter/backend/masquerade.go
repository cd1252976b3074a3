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
		func(t *nft.Conn) error { return t.AddMasquerade(ctx, key, addrs) },
		func(b *iptables.Backend) error { return b.Add(ctx, key, iptables.Masquerade(key, addrs)) })
}

// DelMasquerade is netfilter.Masquerader's in all backends.
func DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	h, err := look(reference.MasqueradeTables(), iptables.Masquerading.Tables())
	if err != nil {
		return err
	}
	defer h.close()
	return h.delMasquerade(ctx, key, hint)
}

// DelBridge removes what the attachment has for being behind a bridge: the
// masquerade, as DelMasquerade does, and the spoof check. The bridge plugin's DEL
// removes both whatever its configuration, and saves a look at the host.
func DelBridge(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	h, err := look(reference.MasqueradeTables(), iptables.Masquerading.Tables(), spoofCheckTables())
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.delMasquerade(ctx, key, hint),
		h.delSpoofCheck(ctx, key))
}

func (h *host) delMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	return errors.Join(
		h.inNFT(func(t *nft.Conn) error { return t.DelMasquerade(ctx, key, hint) }),
		h.inReference(reference.MasqueradeTables(), func(c *nft.Conn) error { return reference.DelMasquerade(ctx, c, key) }),
		h.delIPTables(ctx, iptables.Masquerading, key, hint))
}

// CheckMasquerade is netfilter.Masquerader's with the backend that is wished
// for, or with the other one if nothing is said: what an attachment has may be
// from before an upgrade.
func CheckMasquerade(ctx context.Context, w Wish, key plugin.Key, addrs []netip.Prefix) error {
	return w.either(
		func(t *nft.Conn) error { return t.CheckMasquerade(ctx, key, addrs) },
		func(b *iptables.Backend) error { return b.Check(ctx, key, iptables.Masquerade(key, addrs)) })
}

// GCMasquerade is netfilter.Masquerader's in all backends.
func GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	defer h.close()
	return errors.Join(
		h.inNFT(func(t *nft.Conn) error { return t.GCMasquerade(ctx, network, valid) }),
		h.inNFT(func(c *nft.Conn) error { return reference.GCMasquerade(ctx, c, network, valid) }),
		iptables.On(h.conn).GC(ctx, iptables.Masquerading, network, valid))
}
