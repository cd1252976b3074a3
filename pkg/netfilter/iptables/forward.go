package iptables

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The chains of all containers: with the rules of addresses, and those that keep bridges apart. Of the latter the first is
// for packets that leave a protected bridge, the second for those of them that would enter another.
const (
	forwardChain = "CNI-FORWARD"
	stage1       = "CNI-ISOLATION-STAGE-1"
	stage2       = "CNI-ISOLATION-STAGE-2"
)

// adminChain returns the administrator's chain.
func adminChain(name string) string { return cmp.Or(name, defaultAdminChain) }

// ForwardRules returns the rules of addresses, and of the policy of their bridge.
func ForwardRules(key plugin.Key, f spec.ForwardNeeds) Rules {
	admin := adminChain(f.AdminChain)
	r := Rules{owner: owner{Forwarding, key}, err: ValidateChain("iptablesAdminChainName", admin)}
	for _, fam := range families() {
		addrs := filter(f.Addrs, func(a netip.Addr) bool { return familyOf(a) == fam })
		if len(addrs) > 0 {
			r.chains = []string{forwardChain, admin}
			r.shared = append(r.shared,
				rule{family: fam, chain: hookChain, spec: `-m comment --comment "CNI firewall plugin rules" -j ` + forwardChain, first: true},
				rule{family: fam, chain: forwardChain, spec: `-m comment --comment "CNI firewall plugin admin overrides" -j ` + admin, first: true})
		}
		for _, a := range addrs {
			r.own = append(r.own, addressRules(a)...)
		}
		if f.Ingress != spec.Open && (len(addrs) > 0 || len(f.Addrs) == 0) {
			r.protect(fam, f)
		}
	}
	if f.Ingress != spec.Open {
		r.chains = append(r.chains, stage1, stage2)
	}
	return r
}

// addressRules let an address connect and be answered. New connections to its published ports are left to the
// administrator's chain, as the reference plugin does: it could not remove a rule for them.
func addressRules(a netip.Addr) []rule {
	f := familyOf(a)
	return []rule{
		{family: f, chain: forwardChain, spec: "-d " + single(a) + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"},
		{family: f, chain: forwardChain, spec: "-s " + single(a) + " -j ACCEPT"},
	}
}

// protect adds what a policy needs: rules that all attachments of the bridge have in common.
func (r *Rules) protect(f *family, forward spec.ForwardNeeds) {
	b := forward.Bridge
	const longest = 15 // of names of links
	if !isName(b, longest) || strings.ContainsAny(b, "/+") {
		r.err = plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
			"ingressPolicy: %q is no bridge", b)
	}
	r.shared = append(r.shared, isolationJump(f), policyRule(f, stage1, "", anyPolicy, "RETURN"), policyRule(f, stage2, "", anyPolicy, "RETURN"))
	policy := map[spec.Ingress]string{spec.SameBridge: "same-bridge", spec.Isolated: "isolated"}[forward.Ingress]
	r.own = append(r.own,
		policyRule(f, stage1, "-i "+b+" ! -o "+b+" ", policy, stage2),
		policyRule(f, stage2, "-o "+b+" ", anyPolicy, "DROP"))
	if forward.Ingress == spec.Isolated {
		r.own = append(r.own, policyRule(f, stage1, "-i "+b+" -o "+b+" ", policy, "DROP"))
	}
	if forward.Published {
		r.own = append(r.own, publishedRule(f, stage1, "-i "+b, "REPLY"), publishedRule(f, stage2, "-o "+b, "ORIGINAL"))
		if forward.Ingress == spec.Isolated {
			r.own = append(r.own, publishedRule(f, stage1, "-i "+b+" -o "+b, "ORIGINAL"))
		}
	}
}

// publishedRule lets packets of connections to published ports pass, before a rule of the same bridge that drops them.
func publishedRule(f *family, chain, match, way string) rule {
	spec := match + " -m conntrack --ctstate DNAT --ctdir " + way + ` -m comment --comment "cnibox firewall (allowPublishedPorts)" -j RETURN`
	return rule{family: f, chain: chain, spec: spec, first: true, common: true}
}

const anyPolicy = "same-bridge|isolated"

func policyRule(f *family, chain, match, policy, target string) rule {
	spec := match + `-m comment --comment "CNI firewall plugin rules (ingressPolicy: ` + policy + `)" -j ` + target
	return rule{family: f, chain: chain, spec: spec, first: target != "RETURN", common: true}
}

// isolationJump has to come before the jump to CNI-FORWARD.
func isolationJump(f *family) rule { return policyRule(f, hookChain, "", anyPolicy, stage1) }
