package lint

import (
	"net/netip"
	"strconv"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var (
	entryTwice = codes.Declare(finding.Code{Name: "entry-contained", Severity: finding.Warning,
		Meaning: "An entry of a list is in another one, or there twice: it does nothing.",
		Remedy:  "one of the two left out"})
	listsTwice = codes.Declare(finding.Code{Name: "lists-twice", Severity: finding.Error,
		Meaning: "Two plugins of the network have lists of what containers may reach: those of the last one count, and all others do nothing.",
		Remedy:  "all entries in one plugin"})
	closesDNS = codes.Declare(finding.Code{Name: "dns-closed", Severity: finding.Warning,
		Meaning: "The list closes a DNS server that the network gives to containers: they resolve no names.",
		Remedy:  "an entry with port 53 of the server"})
)

// checkReach looks at the lists of what containers may reach.
func (f *file) checkReach(p *part) {
	if !p.facts.ClosesEgress {
		return
	}
	for _, q := range f.network.chain {
		if q == p {
			break
		}
		if q.facts.ClosesEgress {
			f.report(listsTwice, p.get("type").span, "", nil, "an earlier plugin of the network has lists, too: these here take their place")
			break
		}
	}
	lists := reach.Lists{Closed: p.get("allow") != nil || p.isOn("internal")}
	lists.Allow, lists.Deny = f.entries(p, "allow"), f.entries(p, "deny")
	if p.isOn("internal") || lists.Closed && len(lists.Allow) == 0 {
		return // nobody wants names there
	}
	for _, q := range f.network.chain {
		servers := q.get("dns").get("nameservers")
		if servers == nil {
			continue
		}
		for _, s := range servers.items {
			if addr, err := netip.ParseAddr(s.text); err == nil && !lists.Permits(addr, reach.UDP, 53) {
				at := netip.AddrPortFrom(addr, 53).String()
				f.report(closesDNS, s.span, strconv.Quote(at)+" in \"allow\"", nil, "the list closes %s: containers resolve no names", at)
			}
		}
	}
}

// entries returns those of a list that can be read, and looks at each.
func (f *file) entries(p *part, key string) (list []reach.Entry) {
	v := p.get(key)
	if v == nil {
		return nil
	}
	for _, item := range v.items {
		e, err := reach.Parse(item.text)
		if err != nil {
			continue // which is an error of the plugin's
		}
		for _, other := range list {
			if other.Has(e) || e.Has(other) {
				f.report(entryTwice, item.span, "", nil, "%s and %s: the one is in the other", e, other)
				break
			}
		}
		list = append(list, e)
	}
	return list
}
