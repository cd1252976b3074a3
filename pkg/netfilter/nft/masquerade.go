package nft

import (
	"context"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddMasquerade implements netfilter.Masquerader.
func (t *Table) AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return t.hold(ctx, attachmentOf(key, useMasquerade), masqueradeClaims(addrs))
}

// DelMasquerade implements netfilter.Masquerader.
func (t *Table) DelMasquerade(ctx context.Context, key plugin.Key, _ []netip.Prefix) error {
	_, err := t.release(ctx, attachmentOf(key, useMasquerade))
	return err
}

// CheckMasquerade implements netfilter.Masquerader.
func (t *Table) CheckMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	claims := masqueradeClaims(addrs)
	if err := t.check(ctx, attachmentOf(key, useMasquerade), claims); err != nil {
		return err
	}
	return t.checkRules(claims)
}

// GCMasquerade implements netfilter.Masquerader. It also removes the sets and rules
// of subnets that have no address left.
func (t *Table) GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	if err := t.collect(ctx, network, useMasquerade, valid); err != nil {
		return err
	}
	return t.collectParts()
}

func masqueradeClaims(addrs []netip.Prefix) []claim {
	var claims []claim
	for _, p := range addrs {
		c := claim{record: record{kind: kindAddress, link: noLink, addr: p.Addr(), port: uint16(p.Bits())}}
		if !slices.ContainsFunc(claims, func(o claim) bool { return o.record.addr == p.Addr() }) {
			claims = append(claims, c)
		}
	}
	return claims
}
