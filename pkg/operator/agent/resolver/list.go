package resolver

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/result"
)

// How long an address stays open to which a name leads: as long as the answer says, within these.
const shortest, longestOpen = 30 * time.Second, 24 * time.Hour

// mostAddresses is how many of an answer are opened, and handed on.
const mostAddresses = 32

// listed answers a container with lists for the names on them, and opens what these lead to before the container can know it. A question for any other
// name leaves the node not at all; of one that does leave it, nothing is the container's own choice.
func (r *Resolver) listed(q *question, from *asker) (*dns.Msg, outcome) {
	asked := q.m.Question[0]
	name := bare(asked.Name)
	open := from.lists.ByName(name)
	if open == nil || names.Validate(name) != nil {
		if isSearched(name, from.lists) {
			return q.reply(dns.RcodeNameError), closed
		}
		r.refusals.log(r.log, from.record, name)
		return q.reply(dns.RcodeRefused), closed
	}
	if asked.Qtype != dns.TypeA && asked.Qtype != dns.TypeAAAA {
		return q.reply(dns.RcodeSuccess), closed // of the name there is nothing else to know
	}
	if !r.forwards.take(from.id) {
		return q.reply(dns.RcodeServerFailure), limited
	}
	defer r.forwards.giveBack(from.id)
	clean := new(dns.Msg).SetQuestion(dns.Fqdn(name), asked.Qtype)
	a, err := r.ask(q, clean.SetEdns0(packetSize, false))
	if err != nil {
		return q.reply(dns.RcodeServerFailure), failed
	}
	reply := q.reply(a.Rcode)
	if a.Rcode != dns.RcodeSuccess {
		return reply, forwarded
	}
	var openings []nft.Opening
	reply.Answer, openings = chosen(a.Answer, name, open, from)
	if !r.hasShare(from, openings) {
		return q.reply(dns.RcodeServerFailure), limited
	}
	if len(openings) > 0 {
		if err := r.opener.open(openings); err != nil {
			r.said.add(aboutLists, "what names on lists lead to can't be opened", err)
			return q.reply(dns.RcodeServerFailure), failed
		}
		r.said.drop(aboutLists)
	}
	for _, rr := range reply.Answer {
		if strings.EqualFold(rr.Header().Name, asked.Name) {
			rr.Header().Name = asked.Name // in the letters of the question
		}
	}
	return reply, forwarded
}

// isSearched reports whether a name is one of the list with a domain behind it, as a C library asks that goes through its search list (resolv.conf(5)). Some
// give up at a refusal, and ask for the name itself if there is no such one.
func isSearched(name string, lists reach.Lists) bool {
	for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name, '.') {
		if name = name[:i]; lists.ByName(name) != nil {
			return true
		}
	}
	return false
}

// chosen returns what of an answer is about the name that was asked, and may be known, and what has to be opened for it.
func chosen(answer []dns.RR, name string, open []reach.Entry, from *asker) (list []dns.RR, openings []nft.Opening) {
	list, about := aliasesOf(answer, name)
	ports := from.lists.NamedPorts()
	looked := 0
	for _, rr := range answer {
		addr, is := addressIn(rr)
		if !is || !about[bare(rr.Header().Name)] {
			continue
		}
		if looked++; looked > mostAddresses {
			break
		}
		rr.Header().Ttl = min(rr.Header().Ttl, uint32(longestOpen/time.Second))
		ttl := max(shortest, time.Duration(rr.Header().Ttl)*time.Second)
		inside := isInside(addr, from.record.Gateways)
		reachable := from.lists.ByAddress(addr)
		for _, e := range open {
			if inside && !e.Within(addr) || e.Prefix.IsValid() && !e.Prefix.Contains(addr) {
				continue
			}
			reachable = true
			openings = append(openings, nft.Opening{List: from.record.List, Ports: slices.Index(ports, e.Ports), Addr: addr, Name: name, For: ttl})
		}
		if reachable {
			list = append(list, rr)
		}
	}
	return list, openings
}

// aliasesOf returns the records by which a name leads to others, and all of these names. Each is followed once.
func aliasesOf(answer []dns.RR, name string) (list []dns.RR, about map[string]bool) {
	next := map[string]*dns.CNAME{}
	for _, rr := range answer {
		if alias, is := rr.(*dns.CNAME); is {
			next[bare(alias.Hdr.Name)] = alias
		}
	}
	about = map[string]bool{}
	for !about[name] {
		about[name] = true
		if alias := next[name]; alias != nil {
			list, name = append(list, alias), bare(alias.Target)
		}
	}
	return list, about
}

func addressIn(rr dns.RR) (addr netip.Addr, is bool) {
	switch rr := rr.(type) {
	case *dns.A:
		addr, is = netip.AddrFromSlice(rr.A.To4())
	case *dns.AAAA:
		addr, is = netip.AddrFromSlice(rr.AAAA.To16())
	}
	return addr, is
}

// insideNets are networks besides those of link-local and private addresses (RFC 1918, RFC 4193) whose addresses mean this host or something close to it, or
// stand for one of IPv4 by a translation that can't be told (RFC 6890, RFC 8215; 168.63.129.16 is the host of a machine in Azure).
var insideNets = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("::ffff:0:0:0/96"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("fec0::/10"),
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// isInside reports whether an address is one to which nobody outside should lead a container by a name: the host's own, a neighbour's, and those of private
// networks.
func isInside(addr netip.Addr, gateways []netip.Addr) bool {
	v4, isEmbedded := reach.Embedded(addr)
	if isEmbedded {
		return !nat64.Contains(addr) || isInside(v4, gateways)
	}
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || slices.ContainsFunc(insideNets, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return true
	}
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return false // nothing leads there
	}
	isNear := routes[0].Gw == nil && slices.Contains(gateways, result.Addr(routes[0].Src)) // on the container's own network
	return routes[0].Type == unix.RTN_LOCAL || isNear
}
