package plugin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
)

// PrintResult returns a result in the form of a CNI version, byte for byte as containernetworking/cni prints it (it does so by
// reflection, which takes a plugin a good part of its time). Unlike there, a result of layer 2 has a form before 0.3.0 too.
func PrintResult(r *types100.Result, version string) []byte {
	doc := object{}.add("cniVersion", version)
	switch {
	case AtLeast(version, "1.0.0"):
		doc = doc.addList("interfaces", mapped(r.Interfaces, interface100)).
			addList("ips", mapped(r.IPs, ip100)).
			addList("routes", mapped(r.Routes, printedRoute))
		if !r.DNS.IsEmpty() {
			doc = doc.add("dns", printedDNS(r.DNS))
		}
		return indented(doc.sorted())
	case AtLeast(version, "0.3.0"):
		doc = doc.addList("interfaces", mapped(r.Interfaces, interface030)).
			addList("ips", mapped(r.IPs, ip030)).
			addList("routes", mapped(r.Routes, printedRoute))
	default:
		doc = addFamily(doc, "ip4", r, isIPv4)
		doc = addFamily(doc, "ip6", r, isIPv6)
	}
	return indented(doc.add("dns", printedDNS(r.DNS)))
}

func interface100(i *types100.Interface) any {
	return interface030(i).(object).addNonZero("mtu", i.Mtu).addNonEmpty("socketPath", i.SocketPath).addNonEmpty("pciID", i.PciID)
}

func interface030(i *types100.Interface) any {
	return object{}.add("name", i.Name).addNonEmpty("mac", i.Mac).addNonEmpty("sandbox", i.Sandbox)
}

func ip100(ip *types100.IPConfig) any { return object{}.addIP(ip) }

func ip030(ip *types100.IPConfig) any {
	version := "6"
	if isIPv4(ip.Address.IP) {
		version = "4"
	}
	return object{}.add("version", version).addIP(ip)
}

func (o object) addIP(ip *types100.IPConfig) object {
	return o.addPointer("interface", ip.Interface).add("address", ip.Address.String()).addIPAddr("gateway", ip.Gateway)
}

func printedRoute(r *types.Route) any {
	return object{}.add("dst", r.Dst.String()).addIPAddr("gw", r.GW).
		addNonZero("mtu", r.MTU).addNonZero("advmss", r.AdvMSS).addNonZero("priority", r.Priority).
		addPointer("table", r.Table).addPointer("scope", r.Scope)
}

func printedDNS(d types.DNS) object {
	text := func(s string) any { return s }
	return object{}.addList("nameservers", mapped(d.Nameservers, text)).addNonEmpty("domain", d.Domain).
		addList("search", mapped(d.Search, text)).addList("options", mapped(d.Options, text))
}

// addFamily adds the form of 0.1.0 and 0.2.0, which has one address of each family and keeps its routes beside it.
func addFamily(doc object, key string, r *types100.Result, is family) object {
	at := slices.IndexFunc(r.IPs, func(ip *types100.IPConfig) bool { return is(ip.Address.IP) })
	if at < 0 {
		return doc
	}
	var routes []any
	for _, route := range r.Routes {
		if is(route.Dst.IP) {
			routes = append(routes, object{}.add("dst", route.Dst.String()).addIPAddr("gw", route.GW))
		}
	}
	ip := object{}.add("ip", r.IPs[at].Address.String()).addIPAddr("gateway", r.IPs[at].Gateway).addList("routes", routes)
	return doc.add(key, ip)
}

// PrintError returns an error as the document a runtime reads (spec 1.1.0, section "Error").
func PrintError(e *types.Error, version string) []byte {
	return indented(object{}.add("cniVersion", version).add("code", int(e.Code)).add("msg", shortened(e.Msg)).addNonEmpty("details", shortened(e.Details)))
}

// mostText is how many bytes of a text an error document has: values that are shown can be of any size.
const mostText = 4096

func shortened(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + fmt.Sprintf("… (%d bytes more)", len(text)-mostText)
}

// PrintVersions returns the answer to VERSION of a plugin that takes configurations of versions from oldest on.
func PrintVersions(oldest string) []byte {
	text := func(s string) any { return s }
	return indented(object{}.add("cniVersion", CurrentVersion).addList("supportedVersions", mapped(Versions(oldest), text)))
}

// object is a JSON object to print. Its values are strings, ints, objects and lists ([]any) of these.
type object []member

type member struct {
	key   string
	value any
}

func (o object) add(key string, value any) object { return append(o, member{key, value}) }

func (o object) addNonEmpty(key, value string) object {
	if value == "" {
		return o
	}
	return o.add(key, value)
}

func (o object) addNonZero(key string, value int) object {
	if value == 0 {
		return o
	}
	return o.add(key, value)
}

func (o object) addPointer(key string, value *int) object {
	if value == nil {
		return o
	}
	return o.add(key, *value)
}

func (o object) addIPAddr(key string, ip []byte) object {
	if len(ip) == 0 {
		return o
	}
	return o.add(key, ipText(ip))
}

func (o object) addList(key string, list []any) object {
	if len(list) == 0 {
		return o
	}
	return o.add(key, list)
}

// sorted returns the object with its keys in alphabetical order, here and below.
func (o object) sorted() object {
	slices.SortFunc(o, func(a, b member) int { return strings.Compare(a.key, b.key) })
	for _, m := range o {
		switch v := m.value.(type) {
		case object:
			v.sorted()
		case []any:
			for _, item := range v {
				if inner, ok := item.(object); ok {
					inner.sorted()
				}
			}
		}
	}
	return o
}

func mapped[T any](items []T, to func(T) any) []any {
	list := make([]any, 0, len(items))
	for _, item := range items {
		list = append(list, to(item))
	}
	return list
}

// indented prints an object as encoding/json would with four blanks for each level.
func indented(o object) []byte { return appendValue(nil, o, "\n") }

// appendValue prints a value; newline is a line's end and the blanks before the next one.
func appendValue(out []byte, value any, newline string) []byte {
	inner := newline + "    "
	switch v := value.(type) {
	case string:
		return conf.AppendString(out, v)
	case int:
		return strconv.AppendInt(out, int64(v), 10)
	case []any:
		for i, item := range v {
			out = appendValue(append(append(out, separator(i, '[')...), inner...), item, inner)
		}
		return append(append(out, newline...), ']')
	case object:
		if len(v) == 0 {
			return append(out, "{}"...)
		}
		for i, m := range v {
			out = conf.AppendString(append(append(out, separator(i, '{')...), inner...), m.key)
			out = appendValue(append(out, ": "...), m.value, inner)
		}
		return append(append(out, newline...), '}')
	}
	panic("a value of no JSON type")
}

func separator(i int, open byte) string {
	if i == 0 {
		return string(open)
	}
	return ","
}
