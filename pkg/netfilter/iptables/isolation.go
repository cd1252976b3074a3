package iptables

import (
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The chains that keep bridges apart: the first is for packets that leave a
// protected bridge, the second for those of them that would enter another.
const (
	stage1 = "CNI-ISOLATION-STAGE-1"
	stage2 = "CNI-ISOLATION-STAGE-2"
)

// protection is what an attachment wants for the bridge that it is behind. The
// rules are for all attachments of the bridge that want them.
type protection struct {
	bridge   string
	policy   string
	families []family
}

// The policies, as rules' comments and records have them.
const (
	sameBridge = "same-bridge"
	isolated   = "isolated"
)

// protect adds what a policy needs.
func (w *wants) protect(f netfilter.Forward) error {
	if err := validateLink(f.Bridge); err != nil {
		return err
	}
	p := &protection{bridge: f.Bridge, policy: sameBridge}
	if f.Ingress == netfilter.Isolated {
		p.policy = isolated
	}
	for _, fam := range families() {
		if len(fam.of(f.Addrs)) > 0 || len(f.Addrs) == 0 && available(fam) {
			p.families = append(p.families, fam)
		}
	}
	for _, fam := range p.families {
		w.shared = append(w.shared, isolationJump(fam))
		w.bridges = append(w.bridges, p.rules(fam)...)
		w.shared = append(w.shared, returnRule(fam, stage1), returnRule(fam, stage2))
	}
	w.chains = append(w.chains, stage1, stage2)
	w.protection = p
	return nil
}

// available tells whether the kernel has a family of addresses, for a policy
// that is not about certain addresses.
func available(f family) bool {
	if f == ipv4 {
		return true
	}
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

func policyComment(policy string) string {
	return ` -m comment --comment "CNI firewall plugin rules (ingressPolicy: ` + policy + `)"`
}

// isolationJump has to come before the jump to CNI-FORWARD.
func isolationJump(f family) rule {
	return rule{family: f, chain: "FORWARD", spec: strings.TrimSpace(policyComment(sameBridge+"|"+isolated)) + " -j " + stage1, first: true}
}

func returnRule(f family, chain string) rule {
	return rule{family: f, chain: chain, spec: strings.TrimSpace(policyComment(sameBridge+"|"+isolated)) + " -j RETURN"}
}

// rules returns the bridge's rules, that of stage 2 last: it serves both
// policies.
func (p *protection) rules(f family) []rule {
	b := quote(p.bridge)
	list := []rule{{family: f, chain: stage1, spec: "-i " + b + " ! -o " + b + policyComment(p.policy) + " -j " + stage2, first: true}}
	if p.policy == isolated {
		list = append(list, rule{family: f, chain: stage1, spec: "-i " + b + " -o " + b + policyComment(isolated) + " -j DROP", first: true})
	}
	return append(list, rule{family: f, chain: stage2, spec: "-o " + b + policyComment(sameBridge+"|"+isolated) + " -j DROP", first: true})
}

// maxLinkName is the length of the longest name of a link.
const maxLinkName = 15

func validateLink(name string) error {
	if quotable(name) && len(name) <= maxLinkName && name != "." && name != ".." && !strings.ContainsAny(name, "/ +") && !strings.HasPrefix(name, "-") && name != "!" {
		return nil
	}
	return plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
		"ingressPolicy: %q is no bridge", name)
}
