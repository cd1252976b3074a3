package iptables

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// forwardChain is the chain with the rules of all addresses.
const forwardChain = "CNI-FORWARD"

// defaultAdminChain is the administrator's if no other is named.
const defaultAdminChain = "CNI-ADMIN"

// AddForward implements netfilter.Forwarder.
func (*Backend) AddForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	w, err := forwardWants(f)
	if err != nil {
		return err
	}
	return add(ctx, attachment{forForward(), key}, w)
}

// DelForward implements netfilter.Forwarder.
func (b *Backend) DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := del(ctx, b, attachment{forForward(), key}, addrsOf(hint))
	return err
}

// CheckForward implements netfilter.Forwarder.
func (*Backend) CheckForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	w, err := forwardWants(f)
	if err != nil {
		return err
	}
	r, err := loadRecord(attachment{forForward(), key})
	if err != nil {
		return err
	}
	if r.of(key.IfName) == nil {
		w = w.asReference()
	}
	return check(ctx, attachment{forForward(), key}, w)
}

// GCForward implements netfilter.Forwarder.
func (*Backend) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	return collect(ctx, forForward(), network, valid)
}

func forwardWants(f netfilter.Forward) (wants, error) {
	admin := f.AdminChain
	if admin == "" {
		admin = defaultAdminChain
	}
	if err := validateChain("iptablesAdminChainName", admin); err != nil {
		return wants{}, err
	}
	var w wants
	if len(f.Addrs) > 0 {
		w.chains = append(w.chains, forwardChain, admin)
	}
	for _, fam := range families() {
		addrs := fam.of(f.Addrs)
		if len(addrs) == 0 {
			continue
		}
		w.shared = append(w.shared,
			rule{family: fam, chain: "FORWARD", spec: `-m comment --comment "CNI firewall plugin rules" -j ` + forwardChain, first: true},
			rule{family: fam, chain: forwardChain, spec: `-m comment --comment "CNI firewall plugin admin overrides" -j ` + admin, first: true})
		for _, a := range addrs {
			w.own = append(w.own, addressRules(a)...)
		}
	}
	w.own = distinct(w.own)
	if f.Ingress == netfilter.Open {
		return w, nil
	}
	return w, w.protect(f)
}

// asReference is what every version of the reference plugin makes, and checks.
func (w wants) asReference() wants {
	w.shared = slices.DeleteFunc(w.shared, func(r rule) bool { return r.chain == stage1 || r.chain == stage2 || r.target() == stage1 })
	w.bridges = nil
	w.own = slices.DeleteFunc(w.own, func(r rule) bool { return r.chain != forwardChain })
	return w
}

// addressRules let an address connect and be answered. New connections to its
// published ports are left to the administrator's chain, as the reference plugin
// does: it could not remove a rule for them.
func addressRules(a netip.Addr) []rule {
	f := familyOf(a)
	return []rule{
		{family: f, chain: forwardChain, spec: "-d " + alone(a) + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", addr: a},
		{family: f, chain: forwardChain, spec: "-s " + alone(a) + " -j ACCEPT", addr: a},
	}
}

// addressOf reads the address that a rule of forwardChain is for.
func addressOf(r rule) (netip.Addr, bool) {
	if r.chain != forwardChain {
		return netip.Addr{}, false
	}
	w, _ := words(r.spec)
	text := option(w, "-s")
	if text == "" {
		text = option(w, "-d")
	}
	p, err := netip.ParsePrefix(text)
	return p.Addr(), err == nil && p.IsSingleIP() && strings.HasSuffix(r.spec, " -j ACCEPT")
}
