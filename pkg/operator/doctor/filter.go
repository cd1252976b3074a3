package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// checkFilter looks for base chains that drop what containers send out of their network, and what is answered.
func checkFilter(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		if !n.isRouted() {
			continue
		}
		v4, v6 := n.families()
		for _, c := range s.filter.drops {
			if (c.v4 && v4 || c.v6 && v6) && !c.lets(n) {
				list = append(list, c.finding(n))
			}
		}
	}
	return list, nil
}

// lets reports whether the chain lets packets of a network pass: a rule says so or, in a chain of iptables, the firewall plugin sees to it.
func (c forwardChain) lets(n *network) bool {
	guarded := n.find(opensFirewall) != nil
	if guarded && c.program != "" {
		return true
	}
	passes := c.passes()
	return slices.ContainsFunc(c.accepts, func(a acceptance) bool {
		marked := len(a.mark) == 4 && binary.NativeEndian.Uint32(a.mark) == nft.ForwardMark
		return a.isFor(n) || a.isForAll() && slices.Contains(passes, a.chain) || guarded && marked
	})
}

func (c forwardChain) String() string {
	if strings.HasSuffix(c.program, "-legacy") {
		return fmt.Sprintf("chain %s of %s", c.name, c.programOf(c.v6))
	}
	return fmt.Sprintf("chain %s of table %s %s", c.name, nftFamily(c.table), c.table.Name)
}

func (c forwardChain) programOf(v6 bool) string {
	if v6 {
		return fmt.Sprintf(c.program, "ip6tables")
	}
	return fmt.Sprintf(c.program, "iptables")
}

// nftFamily is how nft calls a table's family.
func nftFamily(t nftables.Table) string {
	return map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet", nftables.TableFamilyBridge: "bridge"}[t.Family]
}

var (
	dockerDrops = codes.Declare(finding.Code{Name: "docker-drops", Severity: finding.Error,
		Meaning: "Docker has set the policy of chain FORWARD to DROP: containers of this network don't reach anything but the host.",
		Remedy:  "`iptables -I DOCKER-USER …`, or the plugin `firewall`"})
	forwardDrops = codes.Declare(finding.Code{Name: "forward-drops", Severity: finding.Error,
		Meaning: "The host drops what containers of this network send through it.",
		Remedy:  "`iptables -I FORWARD …`, `nft insert rule …`, or the plugin `firewall`"})
	ufwDrops = codes.Declare(finding.Code{Name: "ufw-drops", Severity: finding.Error,
		Meaning: "ufw drops what containers of this network send through the host.",
		Remedy:  "`ufw route allow in on BRIDGE`, `ufw route allow out on BRIDGE`, or the plugin `firewall`"})
)

func (c forwardChain) finding(n *network) Finding {
	summary := fmt.Sprintf("%s drops what no rule accepts, and none accepts packets of network %s", c, n.Name)
	if n.bridge() != "" && bridgedPacketsPass(c.v6 && !c.v4) {
		summary += "; packets between containers of its bridge pass there too (br_netfilter)"
	}
	code, remedy, bridge := forwardDrops, c.acceptRules(n), n.bridge()
	switch {
	case slices.Contains(c.chains, "DOCKER-USER"):
		code = dockerDrops
	case slices.ContainsFunc(c.chains, isUFW):
		code = ufwDrops
		if bridge != "" {
			remedy = finding.Steps(finding.Run("ufw", "route", "allow", "in", "on", bridge), finding.Run("ufw", "route", "allow", "out", "on", bridge))
		}
	}
	if n.find(opensFirewall) == nil {
		remedy = append(remedy, finding.Say(`for good: add {"type": "firewall"} to the plugins in %s, and start its containers again`, n.File)...)
	}
	return found(code, n.Name, remedy, "%s", summary)
}

func isUFW(chain string) bool {
	return strings.HasPrefix(chain, "ufw-before-forward") || strings.HasPrefix(chain, "ufw6-before-forward")
}

// nftName matches what nft takes for a name. It reads its arguments as one text, and a shell's quotes are gone by then.
var nftName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// acceptRules returns the commands that put rules for a network before those that drop.
func (c forwardChain) acceptRules(n *network) (remedy finding.Remedy) {
	add := func(into []string, words ...string) {
		remedy = append(remedy, finding.Run(slices.Concat(into, words)...)...)
	}
	if c.program == "" {
		if !nftName.MatchString(c.table.Name) || !nftName.MatchString(c.name) || n.bridge() != "" && !nftName.MatchString(n.bridge()) {
			return finding.Say("add rules to %s that accept packets of network %s", c, n.Name)
		}
		into := []string{"nft", "insert", "rule", nftFamily(c.table), c.table.Name, c.name}
		if n.find(opensFirewall) != nil {
			mark := fmt.Sprintf("%#x", nft.ForwardMark)
			add(into, "meta", "mark", "and", mark, "==", mark, "accept")
			return remedy
		}
		for _, m := range n.matches(c, "iifname", "oifname", "saddr", "daddr") {
			add(into, append(m.from, "accept")...)
			add(into, append(slices.Clone(m.to), "ct", "state", "established,related", "accept")...)
			add(into, append(slices.Clone(m.to), "ct", "status", "dnat", "accept")...)
		}
		return remedy
	}
	chain := "FORWARD"
	if slices.Contains(c.chains, "DOCKER-USER") {
		chain = "DOCKER-USER"
	}
	into := []string{c.programOf(c.v6), "-I", chain}
	for _, m := range n.matches(c, "-i", "-o", "-s", "-d") {
		add(into, append(m.from, "-j", "ACCEPT")...)
		add(into, append(m.to, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "ACCEPT")...)
	}
	return remedy
}

// match is what rules say of packets from a network, and to it.
type match struct{ from, to []string }

// matches returns them, by the network's bridge or, if it has none, by its addresses. The words before are the packet filter's.
func (n *network) matches(c forwardChain, in, out, source, destination string) (list []match) {
	if bridge := n.bridge(); bridge != "" {
		return []match{{[]string{in, bridge}, []string{out, bridge}}}
	}
	words := func(w string, p netip.Prefix) []string {
		switch {
		case c.program != "":
			return []string{w, p.String()}
		case p.Addr().Is6():
			return []string{"ip6", w, p.String()}
		}
		return []string{"ip", w, p.String()}
	}
	for _, p := range n.subnets() {
		if p.Addr().Is4() && c.v4 || p.Addr().Is6() && c.v6 {
			list = append(list, match{words(source, p), words(destination, p)})
		}
	}
	return list
}
