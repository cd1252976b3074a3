package iptables

import (
	"context"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddMasquerade implements netfilter.Masquerader.
func (*Backend) AddMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return add(ctx, attachment{forMasquerade(), key}, wants{own: masqueradeRules(key, addrs)})
}

// DelMasquerade implements netfilter.Masquerader.
func (b *Backend) DelMasquerade(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := del(ctx, b, attachment{forMasquerade(), key}, addrsOf(hint))
	return err
}

// CheckMasquerade implements netfilter.Masquerader.
func (*Backend) CheckMasquerade(ctx context.Context, key plugin.Key, addrs []netip.Prefix) error {
	return check(ctx, attachment{forMasquerade(), key}, wants{own: masqueradeRules(key, addrs)})
}

// GCMasquerade implements netfilter.Masquerader.
func (*Backend) GCMasquerade(ctx context.Context, network string, valid []plugin.Key) error {
	return collect(ctx, forMasquerade(), network, valid)
}

// masqueradeRules returns the rules of the container's chain and the jumps to
// it. What stays in the networks of the addresses comes first in the chain.
func masqueradeRules(key plugin.Key, addrs []netip.Prefix) []rule {
	chain := attachment{forMasquerade(), key}.chain()
	comment := " -m comment --comment " + quote(trimComment(masqueradeComment(key.Network)+`id: "`+key.ContainerID+`"`))
	var rules []rule
	for _, f := range families() {
		rules = append(rules, masqueradeFamily(f, chain, comment, addrs)...)
	}
	return rules
}

func masqueradeFamily(f family, chain, comment string, addrs []netip.Prefix) []rule {
	var inside, outside []rule
	for _, p := range addrs {
		if familyOf(p.Addr()) != f {
			continue
		}
		inside = append(inside, rule{family: f, chain: chain, spec: "-d " + p.Masked().String() + comment + " -j ACCEPT", first: true})
		outside = append(outside, rule{family: f, chain: "POSTROUTING", spec: "-s " + alone(p.Addr()) + comment + " -j " + chain})
	}
	if len(inside) == 0 {
		return nil
	}
	multicast := "224.0.0.0/4"
	if f == ipv6 {
		multicast = "ff00::/8"
	}
	rules := append(distinct(inside), rule{family: f, chain: chain, spec: "! -d " + multicast + comment + " -j MASQUERADE"})
	return append(rules, distinct(outside)...)
}

// masqueradeComment is what the comments of a network's rules begin with.
func masqueradeComment(network string) string { return `name: "` + network + `" ` }

// distinct returns the rules, each once.
func distinct(rules []rule) []rule {
	seen := map[string]bool{}
	var list []rule
	for _, r := range rules {
		id := r.identity()
		if !seen[id] {
			list = append(list, r)
		}
		seen[id] = true
	}
	return list
}
