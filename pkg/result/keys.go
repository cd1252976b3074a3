package result

import "github.com/cnibox/cnibox/pkg/keys"

// DNSKeys are the keys that ParseDNS reads.
func DNSKeys() keys.Table {
	return keys.Table{
		{Name: "nameservers", Type: keys.Strings, Doc: "Addresses of name servers, the first to be asked first."},
		{Name: "domain", Type: keys.String, Doc: "The local domain, to look short names up in."},
		{Name: "search", Type: keys.Strings, Doc: "Domains to look short names up in, one after the other."},
		{Name: "options", Type: keys.Strings, Doc: "Options of the resolver, as in resolv.conf(5)."},
	}
}

// RouteKeys are the keys of each route that ParseRoutes reads.
func RouteKeys() keys.Table {
	return keys.Table{
		{Name: "dst", Type: keys.String, Form: keys.AddressWith, Required: true, Doc: "The network that it leads to, such as `0.0.0.0/0`."},
		{Name: "gw", Type: keys.String, Form: keys.Address, Default: "the gateway of the address", Doc: "The next hop."},
		{Name: "mtu", Type: keys.Int, Default: "the interface's", Doc: "The largest packet that takes it, in bytes."},
		{Name: "advmss", Type: keys.Int, Default: "from the MTU", Doc: "The largest TCP segment to announce, in bytes."},
		{Name: "priority", Type: keys.Int, Default: "the kernel's", Doc: "The metric: of two routes the one with the lower is taken."},
		{Name: "table", Type: keys.Int, Default: "the main table", Doc: "The number of the routing table that it goes into."},
		{Name: "scope", Type: keys.Int, Default: "by the gateway", Doc: "How far it reaches: 0 everywhere, 253 the link, 254 this host."},
	}
}
