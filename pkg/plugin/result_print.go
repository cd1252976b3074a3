package plugin

import (
	"net/netip"
	"strconv"

	"github.com/cnibox/cnibox/pkg/conf"
)

// JSON returns the result in the form of a CNI version: from 1.0.0 on as it
// is, from 0.3.0 with each address's family and fewer interface keys, before
// that the first address of each family only.
func (r *Result) JSON(version string) []byte {
	w := newWriter()
	w.open('{')
	w.key("cniVersion").string(version)
	switch {
	case AtLeast(version, "0.3.0"):
		r.print(w, AtLeast(version, "1.0.0"))
	default:
		r.printFirst(w)
	}
	w.close('}')
	return w.out
}

// print writes the form of 0.3.0 and later.
func (r *Result) print(w *writer, modern bool) {
	list(w, "interfaces", r.Interfaces, func(f Interface) { f.print(w, modern) })
	list(w, "ips", r.IPs, func(ip IP) { ip.print(w, modern) })
	list(w, "routes", r.Routes, func(route Route) { route.print(w, true) })
	if !modern || !r.DNS.IsZero() {
		r.DNS.print(w)
	}
}

// printFirst writes the form of 0.1.0 and 0.2.0, which has one address of each
// family and keeps its routes beside it.
func (r *Result) printFirst(w *writer) {
	for _, family := range []struct {
		key string
		is  func(netip.Addr) bool
	}{{"ip4", netip.Addr.Is4}, {"ip6", netip.Addr.Is6}} {
		for _, ip := range r.IPs {
			if !family.is(ip.Address.Addr()) {
				continue
			}
			w.key(family.key).open('{')
			w.key("ip").string(ip.Address.String())
			w.optional("gateway", ip.Gateway)
			var routes []Route
			for _, route := range r.Routes {
				if family.is(route.Dst.Addr()) {
					routes = append(routes, route)
				}
			}
			list(w, "routes", routes, func(route Route) { route.print(w, false) })
			w.close('}')
			break
		}
	}
	r.DNS.print(w)
}

func (f Interface) print(w *writer, modern bool) {
	w.open('{')
	w.key("name").string(f.Name)
	w.optionalString("mac", f.MAC)
	if modern {
		w.optionalInt("mtu", f.MTU)
	}
	w.optionalString("sandbox", f.Sandbox)
	if modern {
		w.optionalString("socketPath", f.SocketPath)
		w.optionalString("pciID", f.PCIID)
	}
	w.close('}')
}

func (ip IP) print(w *writer, modern bool) {
	w.open('{')
	if !modern {
		family := "4"
		if ip.Address.Addr().Is6() {
			family = "6"
		}
		w.key("version").string(family)
	}
	if ip.Interface != nil {
		w.key("interface").int(*ip.Interface)
	}
	w.key("address").string(ip.Address.String())
	w.optional("gateway", ip.Gateway)
	w.close('}')
}

func (route Route) print(w *writer, full bool) {
	w.open('{')
	w.key("dst").string(route.Dst.String())
	w.optional("gw", route.GW)
	if full {
		w.optionalInt("mtu", route.MTU)
		w.optionalInt("advmss", route.AdvMSS)
		w.optionalInt("priority", route.Priority)
		if route.Table != nil {
			w.key("table").int(*route.Table)
		}
		if route.Scope != nil {
			w.key("scope").int(*route.Scope)
		}
	}
	w.close('}')
}

func (d DNS) print(w *writer) {
	text := func(s string) { w.string(s) }
	w.key("dns").open('{')
	list(w, "nameservers", d.Nameservers, text)
	w.optionalString("domain", d.Domain)
	list(w, "search", d.Search, text)
	list(w, "options", d.Options, text)
	w.close('}')
}

// JSON returns the error as the document a runtime reads (spec 1.1.0, section
// "Error").
func (e *Error) JSON(version string) []byte {
	w := newWriter()
	w.open('{')
	w.key("cniVersion").string(version)
	w.key("code").int(int(e.Code))
	w.key("msg").string(e.Msg)
	w.optionalString("details", e.Details)
	w.close('}')
	return w.out
}

// VersionJSON returns the answer to VERSION of a plugin that takes
// configurations of versions from oldest on.
func VersionJSON(oldest string) []byte {
	w := newWriter()
	w.open('{')
	w.key("cniVersion").string(CurrentVersion)
	list(w, "supportedVersions", Versions(oldest), func(v string) { w.string(v) })
	w.close('}')
	return w.out
}

// writer builds indented JSON, which people read when they run a plugin by
// hand. (encoding/json takes 0.25 ms for its first document.)
type writer struct {
	out   []byte
	depth int
	item  bool // the current object or list has an item already
}

// newWriter has room for a usual document: to grow into it takes six
// allocations, each of another size, which is two page faults for the first one.
func newWriter() *writer { return &writer{out: make([]byte, 0, 1024)} }

func (w *writer) open(bracket byte) {
	w.out = append(w.out, bracket)
	w.depth++
	w.item = false
}

func (w *writer) close(bracket byte) {
	w.depth--
	if w.item {
		w.line()
	}
	w.out = append(w.out, bracket)
	w.item = true
}

// next starts the next item of the current object or list.
func (w *writer) next() {
	if w.item {
		w.out = append(w.out, ',')
	}
	w.line()
	w.item = true
}

func (w *writer) line() {
	w.out = append(w.out, '\n')
	for range w.depth {
		w.out = append(w.out, "    "...)
	}
}

func (w *writer) key(k string) *writer {
	w.next()
	w.string(k)
	w.out = append(w.out, ": "...)
	return w
}

func (w *writer) int(n int) { w.out = strconv.AppendInt(w.out, int64(n), 10) }

// string writes s quoted.
func (w *writer) string(s string) { w.out = conf.AppendString(w.out, s) }

func (w *writer) optionalString(key, s string) {
	if s != "" {
		w.key(key).string(s)
	}
}

func (w *writer) optionalInt(key string, n int) {
	if n != 0 {
		w.key(key).int(n)
	}
}

func (w *writer) optional(key string, a netip.Addr) {
	if a.IsValid() {
		w.key(key).string(a.String())
	}
}

// list writes a list under key, nothing when it is empty.
func list[T any](w *writer, key string, items []T, print func(T)) {
	if len(items) == 0 {
		return
	}
	w.key(key).open('[')
	for _, item := range items {
		w.next()
		print(item)
	}
	w.close(']')
}
