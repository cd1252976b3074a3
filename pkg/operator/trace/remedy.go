package trace

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
)

// nftName matches what nft takes for a name. It reads its arguments as one text, and a shell's quotes are gone by then.
var nftName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// IsPlain reports whether nft takes a name as it is.
func IsPlain(name string) bool { return nftName.MatchString(name) }

// isIPTables reports whether a chain is one that iptables-nft has made, whose rules iptables should go on to understand.
func isIPTables(e Event) bool {
	isTable := e.Table == "filter" || e.Table == "nat" || e.Table == "mangle" || e.Table == "raw" || e.Table == "security"
	return isTable && (e.Family == "ip" || e.Family == "ip6") && strings.ToUpper(e.Chain) == e.Chain
}

func iptablesOf(h Header) string {
	if h.To.Is6() {
		return "ip6tables"
	}
	return "iptables"
}

// accept returns the commands that let the packet pass where it was dropped, and nothing else. If it stands for all of its network they let those pass.
// Nobody's rule is taken away for it.
func (r *run) accept(s stage, owner Owner) finding.Remedy {
	h := s.Packet
	in, out := s.at.linkName(s.In), s.at.linkName(s.Out)
	switch {
	case owner == UFW && s.hook == "forward" && r.Imitated:
		return append(r.accepting(s, ufwWords, "ufw", "route", "allow"), r.firewallPlugin()...)
	case owner == UFW && s.hook == "forward":
		return finding.Run("ufw", "route", "allow", "in", "on", in, "out", "on", out)
	case owner == UFW:
		return finding.Run("ufw", "allow", "in", "on", in, "to", h.To.String())
	case owner == Firewalld:
		return r.trust(h)
	case owner == KubeProxy:
		return finding.Say("kube-proxy writes this rule again: see the endpoints and the policy of the Service, with kubectl describe service, endpointslices")
	case owner == Docker && s.hook == "forward":
		return append(r.accepting(s, iptablesWords, iptablesOf(h), "-I", "DOCKER-USER"), r.firewallPlugin()...)
	case isIPTables(s.Event) && s.Table == "filter":
		return append(r.accepting(s, iptablesWords, iptablesOf(h), "-I", s.Chain), r.forAll()...)
	case isIPTables(s.Event):
		return r.accepting(s, iptablesWords, iptablesOf(h), "-t", s.Table, "-I", s.Chain)
	case !IsPlain(s.Table) || !IsPlain(s.Chain):
		return finding.Say("put a rule into %s that accepts packets from %s to %s", s.Event, h.From, h.To)
	case owner != Administrator:
		return finding.Say("%s writes this rule again: change its configuration so that packets from %s to %s pass", owner, h.From, h.To)
	}
	where := []string{"nft", "insert", "rule", s.Family, s.Table, s.Chain}
	if s.Rule != 0 {
		where = append(where, "position", fmt.Sprint(s.Rule))
	}
	remedy := r.accepting(s, nftWords, where...)
	if s.Family == bridgeFamily && !h.About.IsValid() && !r.Imitated { // which tracks no connections: the answer has to pass by a rule, too
		s.Packet.From, s.Packet.To, s.Packet.FromPort, s.Packet.ToPort = h.To, h.From, h.ToPort, h.FromPort
		remedy = append(remedy, r.accepting(s, nftWords, where...)...)
	}
	return append(remedy, r.forAll()...)
}

// accepting puts rules somewhere that let packets pass.
func (r *run) accepting(s stage, words func(match) []string, where ...string) (remedy finding.Remedy) {
	for _, m := range r.matches(s) {
		if w := words(m); w != nil {
			remedy = append(remedy, finding.Run(slices.Concat(where, w)...)...)
		}
	}
	return remedy
}

// match is what rules say of packets, in the words of each program; nil if one needs no rule for them.
type match struct{ iptables, nft, ufw []string }

func iptablesWords(m match) []string { return followed(m.iptables, "-j", "ACCEPT") }
func nftWords(m match) []string      { return followed(m.nft, "accept") }
func ufwWords(m match) []string      { return m.ufw }

func followed(words []string, by ...string) []string {
	if words == nil {
		return nil
	}
	return slices.Concat(words, by)
}

// matches say which packets have to pass: the one that was dropped or, if it stands for all of its network, those that containers send out, and what is
// answered.
func (r *run) matches(s stage) []match {
	if !r.Imitated {
		return []match{{iptables: r.iptablesWords(s.Packet), nft: r.nftWords(s.Packet)}}
	}
	p, ip := r.subnet().String(), "ip"
	if s.Packet.To.Is6() {
		ip = "ip6"
	}
	from := match{[]string{"-s", p}, []string{ip, "saddr", p}, []string{"from", p}}
	to := match{[]string{"-d", p}, []string{ip, "daddr", p}, []string{"to", p}}
	if s.hook != "forward" {
		return []match{from}
	}
	if r.from.bridge != nil && IsPlain(r.from.bridge.Attrs().Name) {
		name := r.from.bridge.Attrs().Name
		from = match{[]string{"-i", name}, []string{"iifname", name}, []string{"in", "on", name}}
		to = match{[]string{"-o", name}, []string{"oifname", name}, []string{"out", "on", name}}
	}
	published := match{nft: slices.Concat(to.nft, []string{"ct", "status", "dnat"})}
	to.iptables = append(to.iptables, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED,DNAT")
	to.nft = slices.Concat(to.nft, []string{"ct", "state", "established,related"})
	return []match{from, to, published}
}

// subnet is the network of the sender's address.
func (r *run) subnet() netip.Prefix {
	for _, p := range r.Source.Attachments[0].Addresses {
		if p.Addr() == r.flow.From {
			return p.Masked()
		}
	}
	return netip.PrefixFrom(r.flow.From, r.flow.From.BitLen())
}

// forAll is the remedy for good if the packet stands for all of its network.
func (r *run) forAll() finding.Remedy {
	if !r.Imitated {
		return nil
	}
	return r.firewallPlugin()
}

// firewallPlugin is the remedy for good, if the network does not have the plugin.
func (r *run) firewallPlugin() finding.Remedy {
	for _, c := range []*Container{r.Source, r.Target} {
		if c != nil && len(c.Attachments) > 0 && !slices.ContainsFunc(r.parts(c.Attachments[0]), func(p *netconf.Part) bool { return p.Facts.OpensFirewall }) {
			return finding.Say(`for good: add {"type": "firewall"} to the plugins of network %s, and start its containers again`, c.Attachments[0].Network)
		}
	}
	return nil
}

// trust has firewalld take what the container sends and gets for that of a friend.
func (r *run) trust(h Header) finding.Remedy {
	for _, c := range []*Container{r.Source, r.Target} {
		if c == nil {
			continue
		}
		for _, a := range c.Attachments {
			for _, p := range a.Addresses {
				switch {
				case p.Addr() != h.From && p.Addr() != h.To:
				case r.Imitated:
					source := "--change-source=" + p.Masked().String()
					return slices.Concat(finding.Run("firewall-cmd", "--zone=trusted", source), finding.Run("firewall-cmd", "--permanent", "--zone=trusted", source), r.firewallPlugin())
				default:
					return append(finding.Run("firewall-cmd", "--zone=trusted", "--change-source="+p.Addr().String()), r.firewallPlugin()...)
				}
			}
		}
	}
	return finding.Say("open it in the zone that the packet comes by: firewall-cmd --get-active-zones")
}

// peers are the addresses of a packet, as far as a rule should name them: one that was made up stands for all.
func (r *run) peers(h Header) (from, to netip.Addr) {
	from, to = h.From, h.To
	if r.Outside && from == r.flow.From {
		from = netip.Addr{}
	}
	if r.Outside && to == r.flow.From {
		to = netip.Addr{}
	}
	return from, to
}

// port is what a rule says of a packet's port: of an answer that from which it comes.
func (r *run) port(h Header, source, destination string) []string {
	switch {
	case h.isICMP() || h.ToPort == 0:
		return nil
	case r.isAnswer(h):
		return []string{source, fmt.Sprint(h.FromPort)}
	}
	return []string{destination, fmt.Sprint(h.ToPort)}
}

func (r *run) iptablesWords(h Header) (words []string) {
	from, to := r.peers(h)
	if from.IsValid() {
		words = append(words, "-s", from.String())
	}
	if to.IsValid() {
		words = append(words, "-d", to.String())
	}
	if name := protocolName(h); name != "" {
		words = append(append(words, "-p", name), r.port(h, "--sport", "--dport")...)
	}
	return words
}

func (r *run) nftWords(h Header) (words []string) {
	if h.About.IsValid() {
		return []string{"ether", "type", "arp"}
	}
	ip := "ip"
	if h.To.Is6() {
		ip = "ip6"
	}
	from, to := r.peers(h)
	if from.IsValid() {
		words = append(words, ip, "saddr", from.String())
	}
	if to.IsValid() {
		words = append(words, ip, "daddr", to.String())
	}
	switch name := protocolName(h); {
	case h.isICMP():
		words = append(words, "meta", "l4proto", name)
	case name != "":
		words = append(append(words, name), r.port(h, "sport", "dport")...)
	}
	return words
}

func protocolName(h Header) string {
	return map[byte]string{1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp"}[h.Protocol]
}

// target is a packet's destination for people.
func (h Header) target() string {
	if h.ToPort == 0 || h.isPing() {
		return h.To.String()
	}
	return netip.AddrPortFrom(h.To, h.ToPort).String()
}
