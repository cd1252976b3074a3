package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
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
	return fmt.Sprintf("chain %s of table %s %s", c.name, c.family(), c.table.Name)
}

func (c forwardChain) programOf(v6 bool) string {
	if v6 {
		return fmt.Sprintf(c.program, "ip6tables")
	}
	return fmt.Sprintf(c.program, "iptables")
}

func (c forwardChain) family() string {
	return map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}[c.table.Family]
}

func (c forwardChain) finding(n *network) Finding {
	summary := fmt.Sprintf("%s drops what no rule accepts, and none accepts packets of network %s", c, n.Name)
	if n.bridge() != "" && bridgedPacketsPass(c.v6 && !c.v4) {
		summary += "; packets between containers of its bridge pass there too (br_netfilter)"
	}
	code, remedy, bridge := "forward-drops", c.acceptRules(n), n.bridge()
	switch {
	case slices.Contains(c.chains, "DOCKER-USER"):
		code = "docker-drops"
	case slices.ContainsFunc(c.chains, isUFW):
		code = "ufw-drops"
		if bridge != "" {
			remedy = []string{command("ufw", "route", "allow", "in", "on", bridge), command("ufw", "route", "allow", "out", "on", bridge)}
		}
	}
	if n.find(opensFirewall) == nil {
		remedy = append(remedy, comment(`for good: add {"type": "firewall"} to the plugins in %s, and start its containers again`, n.File))
	}
	return found(code, n.Name, lines(remedy...), "%s", summary)
}

func isUFW(chain string) bool {
	return strings.HasPrefix(chain, "ufw-before-forward") || strings.HasPrefix(chain, "ufw6-before-forward")
}

// acceptRules returns the commands that put rules for a network before those that drop.
func (c forwardChain) acceptRules(n *network) (commands []string) {
	if c.program == "" {
		into := fmt.Sprintf("nft insert rule %s %s %s ", c.family(), quote(c.table.Name), quote(c.name))
		if n.find(opensFirewall) != nil {
			return []string{into + fmt.Sprintf("meta mark and %#x == %#x accept", nft.ForwardMark, nft.ForwardMark)}
		}
		for _, m := range n.matches(c, "iifname", "oifname", "ip saddr", "ip daddr") {
			commands = append(commands, into+m.from+" accept", into+m.to+" ct state established,related accept", into+m.to+" ct status dnat accept")
		}
		return commands
	}
	chain := "FORWARD"
	if slices.Contains(c.chains, "DOCKER-USER") {
		chain = "DOCKER-USER"
	}
	into := c.programOf(c.v6) + " -I " + chain + " "
	for _, m := range n.matches(c, "-i", "-o", "-s", "-d") {
		commands = append(commands, into+m.from+" -j ACCEPT", into+m.to+" -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT")
	}
	return commands
}

// match is what rules say of packets from a network, and to it.
type match struct{ from, to string }

// matches returns them, by the network's bridge or, if it has none, by its addresses. The words before are the packet filter's.
func (n *network) matches(c forwardChain, in, out, source, destination string) (list []match) {
	if bridge := n.bridge(); bridge != "" {
		return []match{{in + " " + quote(bridge), out + " " + quote(bridge)}}
	}
	word := func(w string, p netip.Prefix) string {
		if p.Addr().Is6() {
			w = strings.Replace(w, "ip ", "ip6 ", 1)
		}
		return w + " " + p.String()
	}
	for _, p := range n.subnets() {
		if p.Addr().Is4() && c.v4 || p.Addr().Is6() && c.v6 {
			list = append(list, match{word(source, p), word(destination, p)})
		}
	}
	return list
}
