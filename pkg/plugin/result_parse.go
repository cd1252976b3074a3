package plugin

import (
	"net/netip"

	"github.com/cnibox/cnibox/pkg/conf"
)

// ParseResult reads a result in the form of the version it names, or of the
// given one if it names none. It is strict unless o is lenient.
func ParseResult(o *conf.Object, version string) (*Result, error) {
	o.String("cniVersion", &version)
	if age(version) < 0 {
		return nil, ConfigError("the plugin that made the result must name a CNI version up to "+CurrentVersion,
			"key %q: unknown CNI version %q", o.Path("cniVersion"), version)
	}
	r := &Result{}
	if AtLeast(version, "0.3.0") {
		r.parse(o)
	} else {
		r.parseFirst(o)
	}
	r.DNS = ParseDNS(o.Object("dns"))
	if err := o.Err(); err != nil {
		return nil, &Error{Code: CodeInvalidConfig, Msg: err.Error(), Details: "a result must have the form of CNI " + version}
	}
	return r, nil
}

// In returns what a plugin reads of the result when it is handed on in the form
// of a version: all of it from 1.0.0 on, without printing it.
func (r *Result) In(version string) (*Result, error) {
	if AtLeast(version, "1.0.0") {
		return r, nil
	}
	o, err := conf.Parse(r.JSON(version))
	if err != nil {
		return nil, err
	}
	return ParseResult(o, version)
}

func (r *Result) parse(o *conf.Object) {
	o.Objects("interfaces", func(e *conf.Object) {
		var f Interface
		e.String("name", &f.Name)
		e.String("mac", &f.MAC)
		e.Int("mtu", &f.MTU)
		e.String("sandbox", &f.Sandbox)
		e.String("socketPath", &f.SocketPath)
		e.String("pciID", &f.PCIID)
		r.Interfaces = append(r.Interfaces, f)
	})
	o.Objects("ips", func(e *conf.Object) {
		var ip IP
		Prefix(e, "address", &ip.Address)
		Addr(e, "gateway", &ip.Gateway)
		e.OptionalInt("interface", &ip.Interface)
		if !ip.Address.IsValid() {
			e.Fail("address", "an address with prefix length, such as 10.88.0.2/24", "none")
			return
		}
		r.IPs = append(r.IPs, ip)
	})
	r.Routes = ParseRoutes(o, "routes")
}

func (r *Result) parseFirst(o *conf.Object) {
	for _, key := range []string{"ip4", "ip6"} {
		e := o.Object(key)
		var ip IP
		Prefix(e, "ip", &ip.Address)
		Addr(e, "gateway", &ip.Gateway)
		if !ip.Address.IsValid() {
			continue
		}
		r.IPs = append(r.IPs, ip)
		r.Routes = append(r.Routes, ParseRoutes(e, "routes")...)
	}
}

// ParseRoutes reads the list of routes at key.
func ParseRoutes(o *conf.Object, key string) []Route {
	var routes []Route
	o.Objects(key, func(e *conf.Object) {
		var route Route
		Prefix(e, "dst", &route.Dst)
		Addr(e, "gw", &route.GW)
		e.Int("mtu", &route.MTU)
		e.Int("advmss", &route.AdvMSS)
		e.Int("priority", &route.Priority)
		e.OptionalInt("table", &route.Table)
		e.OptionalInt("scope", &route.Scope)
		if !route.Dst.IsValid() {
			e.Fail("dst", "a network such as 0.0.0.0/0", "none")
			return
		}
		routes = append(routes, route)
	})
	return routes
}

// ParseDNS reads a dns object.
func ParseDNS(o *conf.Object) DNS {
	var d DNS
	o.Strings("nameservers", &d.Nameservers)
	o.String("domain", &d.Domain)
	o.Strings("search", &d.Search)
	o.Strings("options", &d.Options)
	return d
}

// Prefix stores the address with prefix length at key, if present. Bits behind
// the prefix are kept.
func Prefix(o *conf.Object, key string, to *netip.Prefix) {
	text := ""
	o.String(key, &text)
	if text == "" {
		return
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		o.Fail(key, "an address with prefix length, such as 10.88.0.2/24", quoted(text))
		return
	}
	*to = p
}

// Addr stores the address at key, if present. An IPv4 address written as IPv6
// (::ffff:10.88.0.1) is the IPv4 address.
func Addr(o *conf.Object, key string, to *netip.Addr) {
	text := ""
	o.String(key, &text)
	if text == "" {
		return
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		o.Fail(key, "an address such as 10.88.0.1", quoted(text))
		return
	}
	*to = a.Unmap()
}

func quoted(s string) string { return `"` + s + `"` }
