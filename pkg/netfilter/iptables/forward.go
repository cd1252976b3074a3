package iptables

import (
	"context"
	"net/netip"
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The chains of all containers: with the rules of addresses, and those that keep
// bridges apart. Of the latter the first is for packets that leave a protected bridge,
// the second for those of them that would enter another.
const (
	forwardChain = "CNI-FORWARD"
	stage1       = "CNI-ISOLATION-STAGE-1"
	stage2       = "CNI-ISOLATION-STAGE-2"
)

// defaultAdminChain is the administrator's if no other is named.
const defaultAdminChain = "CNI-ADMIN"

// AddForward implements netfilter.Forwarder.
func (b *Backend) AddForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	w, err := forwardWants(f)
	if err != nil {
		return err
	}
	return b.hold(ctx, forForward(), key, w)
}

// DelForward implements netfilter.Forwarder.
func (b *Backend) DelForward(ctx context.Context, key plugin.Key, hint []netip.Prefix) error {
	_, err := b.release(ctx, removal{use: forForward(), keys: []plugin.Key{key}, hint: hint})
	return err
}

// CheckForward implements netfilter.Forwarder. Of what the reference plugin has made,
// only what all of its versions make is looked at.
func (b *Backend) CheckForward(ctx context.Context, key plugin.Key, f netfilter.Forward) error {
	list, err := readOwners()
	if err != nil {
		return err
	}
	if len(list.of(owner{forForward().name, key})) == 0 {
		f.Ingress = netfilter.Open
	}
	w, err := forwardWants(f)
	if err != nil {
		return err
	}
	return b.check(ctx, forForward(), key, w)
}

// GCForward implements netfilter.Forwarder.
func (b *Backend) GCForward(ctx context.Context, network string, valid []plugin.Key) error {
	return b.collect(ctx, forForward(), network, valid)
}

func forwardWants(f netfilter.Forward) (w wants, err error) {
	admin := f.AdminChain
	if admin == "" {
		admin = defaultAdminChain
	}
	if err := validateChain("iptablesAdminChainName", admin); err != nil {
		return w, err
	}
	if len(f.Addrs) > 0 {
		w.chains = append(w.chains, forwardChain, admin)
	}
	for _, a := range f.Addrs {
		fam := familyOf(a)
		w.shared = append(w.shared,
			rule{family: fam, chain: "FORWARD", spec: `-m comment --comment "CNI firewall plugin rules" -j ` + forwardChain, first: true},
			rule{family: fam, chain: forwardChain, spec: `-m comment --comment "CNI firewall plugin admin overrides" -j ` + admin, first: true})
		w.own = append(w.own, addressRules(a)...)
	}
	if f.Ingress != netfilter.Open {
		err = w.protect(f)
	}
	w.shared, w.own = distinct(w.shared), distinct(w.own)
	return w, err
}

// addressRules let an address connect and be answered. New connections to its
// published ports are left to the administrator's chain, as the reference plugin
// does: it could not remove a rule for them.
func addressRules(a netip.Addr) []rule {
	f := familyOf(a)
	return []rule{
		{family: f, chain: forwardChain, spec: "-d " + alone(a) + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"},
		{family: f, chain: forwardChain, spec: "-s " + alone(a) + " -j ACCEPT"},
	}
}

// protect adds what a policy needs, which is the same for all attachments of the bridge.
func (w *wants) protect(f netfilter.Forward) error {
	if err := validateLink(f.Bridge); err != nil {
		return err
	}
	policy := "same-bridge"
	if f.Ingress == netfilter.Isolated {
		policy = "isolated"
	}
	has := map[*family]bool{}
	for _, a := range f.Addrs {
		has[familyOf(a)] = true
	}
	if len(f.Addrs) == 0 {
		_, err := os.Stat("/proc/sys/net/ipv6")
		has[&ipv4], has[&ipv6] = true, err == nil
	}
	for _, fam := range families() {
		if has[fam] {
			w.shared = append(w.shared, isolationJump(fam), returnRule(fam, stage1), returnRule(fam, stage2))
			w.own = append(w.own, protection(fam, f.Bridge, policy)...)
		}
	}
	w.chains = append(w.chains, stage1, stage2)
	return nil
}

func policyComment(policy string) string {
	return `-m comment --comment "CNI firewall plugin rules (ingressPolicy: ` + policy + `)"`
}

const anyPolicy = "same-bridge|isolated"

// isolationJump has to come before the jump to CNI-FORWARD.
func isolationJump(f *family) rule {
	return rule{family: f, chain: "FORWARD", spec: policyComment(anyPolicy) + " -j " + stage1, first: true}
}

func returnRule(f *family, chain string) rule {
	return rule{family: f, chain: chain, spec: policyComment(anyPolicy) + " -j RETURN"}
}

// protection returns the rules of a bridge.
func protection(f *family, bridge, policy string) []rule {
	b := quote(bridge)
	list := []rule{{family: f, chain: stage1, spec: "-i " + b + " ! -o " + b + " " + policyComment(policy) + " -j " + stage2, first: true, common: true}}
	if policy == "isolated" {
		list = append(list, rule{family: f, chain: stage1, spec: "-i " + b + " -o " + b + " " + policyComment(policy) + " -j DROP", first: true, common: true})
	}
	return append(list, rule{family: f, chain: stage2, spec: "-o " + b + " " + policyComment(anyPolicy) + " -j DROP", first: true, common: true})
}

func validateLink(name string) error {
	const most = 15 // characters
	if quotable(name) && len(name) <= most && name != "." && name != ".." && !strings.ContainsAny(name, "/ +") && !strings.HasPrefix(name, "-") && name != "!" {
		return nil
	}
	return plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
		"ingressPolicy: %q is no bridge", name)
}
