package iptables

import (
	"context"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddMasquerade implements netfilter.Masquerader.
func (b *Backend) AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return b.hold(ctx, forMasquerade(), key, masqueradeWants(key, addrs))
}

// DelMasquerade implements netfilter.Masquerader.
func (b *Backend) DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := b.release(ctx, removal{use: forMasquerade(), keys: []plugin.Key{key}, hint: hint})
	return err
}

// CheckMasquerade implements netfilter.Masquerader.
func (b *Backend) CheckMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return b.check(ctx, forMasquerade(), key, masqueradeWants(key, addrs))
}

// GCMasquerade implements netfilter.Masquerader.
func (b *Backend) GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	return b.collect(ctx, forMasquerade(), network, valid)
}

// masqueradeWants returns the rules of the container's chain and the jumps to
// it. What stays in the networks of the addresses comes first in the chain.
func masqueradeWants(key plugin.Key, addrs []netip.Prefix) (w wants) {
	chain, comment := forMasquerade().chains(key)[0], forMasquerade().commentOf(key)
	for _, p := range addrs {
		f := familyOf(p.Addr())
		w.own = append(w.own,
			rule{family: f, chain: chain, spec: "-d " + p.Masked().String() + " " + comment + " -j ACCEPT", first: true},
			rule{family: f, chain: chain, spec: "! -d " + f.multicast + " " + comment + " -j MASQUERADE"},
			rule{family: f, chain: "POSTROUTING", spec: "-s " + alone(p.Addr()) + " " + comment + " -j " + chain})
	}
	w.own = distinct(w.own)
	return w
}
