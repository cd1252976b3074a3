package lint

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var (
	entryTwice = codes.Declare(finding.Code{Name: "entry-contained", Severity: finding.Warning,
		Meaning: "An entry of a list is in another one, or there twice: it does nothing.",
		Remedy:  "one of the two left out"})
	entryDenied = codes.Declare(finding.Code{Name: "entry-denied", Severity: finding.Warning,
		Meaning: "All of an entry of `allow` is closed by an entry of `deny`: it opens nothing.",
		Remedy:  "one of the two left out"})
	entryForDNS = codes.Declare(finding.Code{Name: "entry-for-dns", Severity: finding.Warning,
		Meaning: "An entry opens port 53, and the list has names: whatever the container asks of port 53 goes to the agent, so nothing leaves by the entry.",
		Remedy:  "no entry, or one with the other ports that are meant"})
	listsTwice = codes.Declare(finding.Code{Name: "lists-twice", Severity: finding.Error,
		Meaning: "Two plugins of the network have lists of what containers may reach: those of the last one count, and all others do nothing.",
		Remedy:  "all entries in one plugin"})
	closesDNS = codes.Declare(finding.Code{Name: "dns-closed", Severity: finding.Warning,
		Meaning: "The list closes a DNS server that the network gives to containers: they resolve no names.",
		Remedy:  "an entry with port 53 of the server"})
	macBehind = codes.Declare(finding.Code{Name: "mac-behind-lists", Severity: finding.Error,
		Meaning: "A plugin behind the lists gives the interface another MAC address: what the container sends under it is dropped.",
		Remedy:  "the plugin with the lists behind it"})
	leaseEnds = codes.Declare(finding.Code{Name: "lease-ends", Severity: finding.Warning,
		Meaning: "The address is asked for again from inside of the container, which the list closes: the lease ends.",
		Remedy:  "another IPAM plugin, such as host-local"})
)

// checkReach looks at the lists of what containers may reach.
func (f *file) checkReach(p *part) {
	if !p.facts.ClosesEgress {
		return
	}
	all := f.network.all()
	at := slices.Index(all, p)
	if slices.ContainsFunc(all[:at], func(q *part) bool { return q.facts.ClosesEgress }) {
		f.report(listsTwice, p.get("type").span, "", nil, "an earlier plugin of the network has lists, too: these here take their place")
	}
	for _, q := range all[at+1:] {
		if m := q.setsMAC(); m != nil {
			f.report(macBehind, m.key, q.kind+" before "+p.kind, nil, "%s gives the interface another MAC address behind %s, which drops what is sent under it", q.kind, p.kind)
		}
	}
	lists := reach.Lists{Closed: p.get("allow") != nil || p.isOn("internal")}
	allow, deny := f.entries(p, "allow"), f.entries(p, "deny")
	lists.Allow, lists.Deny = entriesOf(allow), entriesOf(deny)
	f.checkAllow(allow, lists)
	if lists.Closed {
		for _, q := range all {
			if q.ipam != nil && q.ipam.facts.RenewsInside {
				f.report(leaseEnds, q.ipam.typed, `"host-local"`, nil, "%s asks for more time from inside of the container, which the list of %s closes: the lease ends", q.ipam.kind, p.kind)
			}
		}
	}
	f.checkServers(p, lists)
}

// setsMAC returns what says that the plugin gives an interface that is there another MAC address, nil if nothing does.
func (p *part) setsMAC() *member {
	const mac = "mac"
	switch asked := p.get("capabilities"); {
	case p.plugin == nil || !p.plugin.Chained:
	case p.reads(mac) && p.str(mac) != "":
		return p.member(mac)
	case p.plugin.AsksFor(mac) && asked.isOn(mac):
		return asked.member(mac)
	}
	return nil
}

// checkAllow looks for entries that open nothing.
func (f *file) checkAllow(allow []entry, lists reach.Lists) {
	for _, e := range allow {
		if i := slices.IndexFunc(lists.Deny, func(d reach.Entry) bool { return d.Has(e.Entry) }); i >= 0 {
			f.report(entryDenied, e.at, "", nil, "%s opens nothing: %s of \"deny\" closes all of it", e, lists.Deny[i])
		}
		if p := e.Ports; p.First == names.Port && p.Last == names.Port && lists.HasNames() {
			f.report(entryForDNS, e.at, "", nil, "nothing leaves by %s: the list has names, so the agent gets all that the container asks of port 53, and asks the node's DNS servers for the names of the list", e)
		}
	}
}

// checkServers looks whether containers reach the DNS servers that they are given: the network's own, and the gateways if containers have names. Where the
// agent gets all questions they need none.
func (f *file) checkServers(p *part, lists reach.Lists) {
	if lists.HasNames() || p.isOn("internal") {
		return
	}
	isClosed := func(addr netip.Addr) bool { return !lists.Permits(addr, reach.UDP, 53) }
	closed := func(at span, addr netip.Addr, why string) {
		entry := netip.AddrPortFrom(addr, 53).String()
		f.report(closesDNS, at, strconv.Quote(entry)+" in \"allow\"", nil, "the list closes %s%s", entry, why)
	}
	for _, q := range f.network.all() {
		if q.facts.NamesContainers {
			for _, gateway := range f.gateways() {
				if isClosed(gateway) {
					closed(q.typed, gateway, ", where the names of containers are answered")
				}
			}
		}
		servers := q.get("dns").get("nameservers")
		if servers == nil || lists.Closed && len(lists.Allow) == 0 {
			continue // nobody wants names from outside there
		}
		for _, s := range servers.items {
			if addr, err := netip.ParseAddr(s.text); err == nil && isClosed(addr) {
				closed(s.span, addr, ": containers resolve no names")
			}
		}
	}
}

// gateways returns the addresses of the host that containers have as gateways, as far as the configuration says them.
func (f *file) gateways() (list []netip.Addr) {
	add := func(o *value, subnet netip.Prefix) {
		gateway, err := netip.ParseAddr(o.str("gateway"))
		if err != nil {
			gateway = subnet.Masked().Addr().Next()
		}
		if !slices.Contains(list, gateway) {
			list = append(list, gateway)
		}
	}
	for _, p := range f.network.all() {
		if !p.facts.IsGateway || p.ipam == nil {
			continue
		}
		for _, r := range pools(p) {
			add(r.value, r.subnet)
		}
		if addresses := p.ipam.get("addresses"); addresses != nil && p.ipam.reads("addresses") {
			for _, e := range addresses.items {
				if own, err := netip.ParsePrefix(e.str("address")); err == nil {
					add(e, own)
				}
			}
		}
	}
	return list
}

// entry is one of a list, and where it is written.
type entry struct {
	reach.Entry
	at span
}

func entriesOf(entries []entry) (list []reach.Entry) {
	for _, e := range entries {
		list = append(list, e.Entry)
	}
	return list
}

// entries returns those of a list that can be read, and looks at each.
func (f *file) entries(p *part, key string) (list []entry) {
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
			if other.Has(e) || e.Has(other.Entry) {
				f.report(entryTwice, item.span, "", nil, "%s and %s: the one is in the other", e, other)
				break
			}
		}
		list = append(list, entry{e, item.span})
	}
	return list
}
