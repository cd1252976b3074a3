package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Print returns a result in the form of a CNI version, byte for byte as containernetworking/cni prints it by reflection.
// Unlike there, a result of layer 2 has a form before 0.3.0 too.
func Print(r *types100.Result, version string) []byte { return indented(FormOf(r, version)) }

// FormOf returns a result in the form of a CNI version.
func FormOf(r *types100.Result, version string) *conf.Object {
	f := form{sorted: plugin.AtLeast(version, "1.0.0")}
	doc := []any{"cniVersion", version}
	if plugin.AtLeast(version, "0.3.0") {
		doc = append(doc, "interfaces", list(r.Interfaces, f.networkInterface), "ips", list(r.IPs, f.ip), "routes", list(r.Routes, f.route))
	} else {
		doc = append(doc, "ip4", family(r, isIPv4), "ip6", family(r, isIPv6))
	}
	if !f.sorted || !r.DNS.IsEmpty() {
		d := r.DNS
		doc = append(doc, "dns", f.object("nameservers", d.Nameservers, "domain", d.Domain, "search", d.Search, "options", d.Options))
	}
	return f.object(doc...)
}

// form is how objects are printed: in alphabetical order from 1.0.0 on.
type form struct{ sorted bool }

func (f form) networkInterface(i *types100.Interface) *conf.Object {
	members := []any{"name", &i.Name, "mac", i.Mac, "sandbox", i.Sandbox}
	if f.sorted {
		members = append(members, "mtu", i.Mtu, "socketPath", i.SocketPath, "pciID", i.PciID)
	}
	return f.object(members...)
}

func (f form) ip(ip *types100.IPConfig) *conf.Object {
	version := "6"
	switch {
	case f.sorted:
		version = ""
	case isIPv4(ip.Address.IP):
		version = "4"
	}
	return f.object("version", version, "interface", ip.Interface, "address", ip.Address.String(), "gateway", text(ip.Gateway))
}

func (f form) route(r *types.Route) *conf.Object {
	return f.object("dst", r.Dst.String(), "gw", text(r.GW), "mtu", r.MTU, "advmss", r.AdvMSS, "priority", r.Priority, "table", r.Table, "scope", r.Scope)
}

// family is the form of 0.1.0 and 0.2.0, which has one address of each family and keeps its routes beside it.
func family(r *types100.Result, is func(net.IP) bool) *conf.Object {
	at := slices.IndexFunc(r.IPs, func(ip *types100.IPConfig) bool { return is(ip.Address.IP) })
	if at < 0 {
		return nil
	}
	var routes []*conf.Object
	for _, route := range r.Routes {
		if is(route.Dst.IP) {
			routes = append(routes, form{}.object("dst", route.Dst.String(), "gw", text(route.GW)))
		}
	}
	return form{}.object("ip", r.IPs[at].Address.String(), "gateway", text(r.IPs[at].Gateway), "routes", routes)
}

func text(ip net.IP) string {
	if len(ip) == 0 {
		return ""
	}
	return ip.String()
}

func isIPv4(ip net.IP) bool { return ip.To4() != nil }
func isIPv6(ip net.IP) bool { return ip.To4() == nil }

// PrintError returns an error as the document a runtime reads (spec 1.1.0, section "Error").
func PrintError(e *types.Error, version string) []byte {
	msg := shortened(e.Msg)
	return indented(form{}.object("cniVersion", version, "code", int(e.Code), "msg", &msg, "details", shortened(e.Details)))
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
	return indented(form{}.object("cniVersion", plugin.CurrentVersion, "supportedVersions", plugin.Versions(oldest)))
}

// object makes an object of keys, each followed by its value. Empty values are left out.
func (f form) object(keysAndValues ...any) *conf.Object {
	members := slices.Collect(slices.Chunk(keysAndValues, 2))
	if f.sorted {
		slices.SortFunc(members, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) })
	}
	o := conf.New()
	for _, m := range members {
		o.Set(m[0].(string), m[1])
	}
	return o
}

func list[T any](items []T, to func(T) *conf.Object) []*conf.Object {
	objects := make([]*conf.Object, 0, len(items))
	for _, item := range items {
		objects = append(objects, to(item))
	}
	return objects
}

// indented prints an object as encoding/json would with four blanks for each level.
func indented(o *conf.Object) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, o.JSON(), "", "    "); err != nil {
		panic(err)
	}
	return out.Bytes()
}
