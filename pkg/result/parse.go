// Package result reads and writes results in the form of each CNI version, and has what plugins ask of their addresses.
package result

import (
	"errors"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Parse reads a result in the form of the version it names, or of the given one if it names none. It is strict unless o is
// lenient.
func Parse(o *conf.Object, version string) (*types100.Result, error) {
	o.String("cniVersion", &version)
	if !plugin.KnownVersion(version) {
		return nil, plugin.ConfigError("the plugin that made the result must name a CNI version up to "+plugin.CurrentVersion,
			"key %q: unknown CNI version %q", o.Path("cniVersion"), version)
	}
	r := &types100.Result{CNIVersion: plugin.CurrentVersion}
	if plugin.AtLeast(version, "0.3.0") {
		parseLists(r, o)
	} else {
		parseFamilies(r, o)
	}
	r.DNS = ParseDNS(o.Object("dns"))
	if err := o.Err(); err != nil {
		return nil, plugin.ConfigError("a result must have the form of CNI "+version, "%w", err)
	}
	return r, nil
}

func parseLists(r *types100.Result, o *conf.Object) {
	o.Objects("interfaces", func(e *conf.Object) {
		f := &types100.Interface{}
		e.String("name", &f.Name)
		e.String("mac", &f.Mac)
		e.Int("mtu", &f.Mtu)
		e.String("sandbox", &f.Sandbox)
		e.String("socketPath", &f.SocketPath)
		e.String("pciID", &f.PciID)
		r.Interfaces = append(r.Interfaces, f)
	})
	o.Objects("ips", func(e *conf.Object) {
		ip := parseIP(e, "address")
		e.OptionalInt("interface", &ip.Interface)
		if ip.Address.IP == nil {
			e.Fail("address", "an address with prefix length, such as 10.88.0.2/24", "none")
			return
		}
		r.IPs = append(r.IPs, ip)
	})
	r.Routes = ParseRoutes(o, "routes")
}

func parseFamilies(r *types100.Result, o *conf.Object) {
	for _, key := range []string{"ip4", "ip6"} {
		e := o.Object(key)
		if ip := parseIP(e, "ip"); ip.Address.IP != nil {
			r.IPs = append(r.IPs, ip)
			r.Routes = append(r.Routes, ParseRoutes(e, "routes")...)
		}
	}
}

func parseIP(o *conf.Object, key string) *types100.IPConfig {
	return &types100.IPConfig{Address: parseNet(o, key), Gateway: ParseIP(o, "gateway")}
}

// ParseRoutes reads the list of routes at key.
func ParseRoutes(o *conf.Object, key string) []*types.Route {
	var routes []*types.Route
	o.Objects(key, func(e *conf.Object) {
		route := &types.Route{Dst: parseNet(e, "dst"), GW: ParseIP(e, "gw")}
		e.Int("mtu", &route.MTU)
		e.Int("advmss", &route.AdvMSS)
		e.Int("priority", &route.Priority)
		e.OptionalInt("table", &route.Table)
		e.OptionalInt("scope", &route.Scope)
		if route.Dst.IP == nil {
			e.Fail("dst", "a network such as 0.0.0.0/0", "none")
			return
		}
		routes = append(routes, route)
	})
	return routes
}

// ParseDNS reads a dns object.
func ParseDNS(o *conf.Object) types.DNS {
	var d types.DNS
	o.Strings("nameservers", &d.Nameservers)
	o.String("domain", &d.Domain)
	o.Strings("search", &d.Search)
	o.Strings("options", &d.Options)
	return d
}

// parseNet returns the address with prefix length at key. Bits behind the prefix are kept.
func parseNet(o *conf.Object, key string) net.IPNet {
	var p netip.Prefix
	ReadPrefix(o, key, &p)
	return IPNet(p)
}

// ParseIP returns the address at key, nil if there is none.
func ParseIP(o *conf.Object, key string) net.IP {
	var a netip.Addr
	ReadAddr(o, key, &a)
	return a.AsSlice()
}

// ReadPrefix stores the address with prefix length at key, if present.
func ReadPrefix(o *conf.Object, key string, to *netip.Prefix) {
	readText(o, key, "an address with prefix length, such as 10.88.0.2/24", to, netip.ParsePrefix)
}

// ReadAddr stores the address at key, if present. An IPv4 address written as IPv6 (::ffff:10.88.0.1) is the IPv4 address.
func ReadAddr(o *conf.Object, key string, to *netip.Addr) {
	readText(o, key, "an address such as 10.88.0.1", to, func(text string) (netip.Addr, error) {
		a, err := netip.ParseAddr(text)
		if a.Zone() != "" {
			err = errors.New("no zones")
		}
		return a.Unmap(), err
	})
}

func readText[T any](o *conf.Object, key, want string, to *T, parse func(text string) (T, error)) {
	text := ""
	o.String(key, &text)
	if text == "" {
		return
	}
	value, err := parse(text)
	if err != nil {
		o.Fail(key, want, `"`+text+`"`)
		return
	}
	*to = value
}
