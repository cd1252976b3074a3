package sbr

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// config is what the sbr plugin reads of a configuration; docs/sbr.md explains each key.
type config struct {
	table    int // 0 is tables of the attachment's own
	gateways []netip.Addr
	hints    bool
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	if o.Has("table") && (c.table < 1 || c.table > math.MaxUint32) {
		o.Fail("table", fmt.Sprintf("the number of a routing table, from 1 to %d", uint32(math.MaxUint32)), strconv.Itoa(c.table))
	}
	var texts []string
	o.Strings("gateways", &texts)
	for i, text := range texts {
		key := fmt.Sprintf("gateways[%d]", i)
		gateway, err := netip.ParseAddr(text)
		gateway = gateway.Unmap()
		switch {
		case err != nil || gateway.Zone() != "" || gateway.IsUnspecified() || gateway.IsMulticast():
			o.Fail(key, "the IP address of a gateway", strconv.Quote(text))
		case c.gateway(gateway).IsValid():
			o.Fail(key, "at most one IPv4 and one IPv6 address", strconv.Quote(text))
		}
		c.gateways = append(c.gateways, gateway)
	}
	o.Bool("addSourceHints", &c.hints)
	return c, o.Err()
}

// locate reads what DEL needs.
func locate(o *conf.Object) *config {
	c := &config{}
	o.Int("table", &c.table)
	return c
}

// gateway returns the configured gateway for an address's family, the zero Addr if there is none.
func (c *config) gateway(a netip.Addr) netip.Addr {
	for _, gateway := range c.gateways {
		if gateway.Is4() == a.Is4() {
			return gateway
		}
	}
	return netip.Addr{}
}

// An attachment's own tables are numbered from its key: so attachments need not agree on who takes which, DEL finds them by the key
// alone, and they are far from the numbers that people choose. Each address has one, and there are at most so many.
const (
	firstOwnTable = 1 << 30
	tables        = 1 << 6
)

// ownTable returns the number of the attachment's i-th table.
func ownTable(k plugin.Key, i int) int {
	id := k.ID("sbr")
	return firstOwnTable | int(binary.BigEndian.Uint32(id[8:])%firstOwnTable&^(tables-1)) | i
}

// isOwnTable reports whether a table is one of the attachment's own.
func isOwnTable(k plugin.Key, table int) bool { return table&^(tables-1) == ownTable(k, 0) }

// protocol marks the rules and routes that this plugin adds; a route that it only moves keeps its own.
const protocol = 77

// source is an address of the interface.
type source struct {
	prefix  netip.Prefix // the address, with the length of its network
	gateway netip.Addr   // the zero Addr if there is none
	table   int          // has the routes for packets from the address
}

// sources returns the interface's addresses in the previous result.
func (c *config) sources(r *plugin.Request) (list []source) {
	for i, ip := range result.AddressesOf(r.PrevResult, r.IfName) {
		s := source{prefix: result.Prefix(ip.Address), gateway: result.Addr(ip.Gateway), table: c.table}
		if c.table == 0 {
			s.table = ownTable(r.Key, i)
		}
		if gateway := c.gateway(s.prefix.Addr()); gateway.IsValid() {
			s.gateway = gateway
		}
		list = append(list, s)
	}
	return list
}

// rule is what leads packets from the address to the table. The kernel puts it before the rule for the main table.
func (s source) rule() *netlink.Rule {
	src := result.IPNet(single(s.prefix.Addr()))
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Protocol = &src, s.table, protocol
	return rule
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// is reports whether a rule leads all packets from the address to some table.
func (s source) is(rule netlink.Rule) bool {
	plain := *s.rule()
	plain.Family, plain.Priority, plain.Table, plain.Protocol = rule.Family, rule.Priority, rule.Table, rule.Protocol
	return rule.Table != 0 && reflect.DeepEqual(rule, plain)
}

// plan returns which of the interface's routes are to move out of the main table, and what the attachment's own tables are to have.
func plan(routes []netlink.Route, index int, sources []source) (moved, own []netlink.Route) {
	for _, s := range sources {
		var mine []netlink.Route
		for _, rt := range routes {
			if rt.Table == route.Main && s.uses(rt, sources) {
				mine = append(mine, route.In(rt, s.table))
			}
		}
		own = append(own, s.defaultRoute(index, mine)...)
		own = append(own, mine...)
	}
	for _, rt := range routes {
		if rt.Table == route.Main && slices.ContainsFunc(sources, func(s source) bool { return s.uses(rt, sources) }) {
			moved = append(moved, rt)
		}
	}
	return moved, own
}

// uses reports whether a route is for packets from the address. A route whose source or gateway is in the network of another address
// is for that one.
func (s source) uses(rt netlink.Route, all []source) bool {
	if (rt.Family == netlink.FAMILY_V4) != s.prefix.Addr().Is4() {
		return false
	}
	for _, ip := range []net.IP{rt.Src, rt.Gw} {
		a := result.Addr(ip)
		if a.IsValid() && !s.prefix.Contains(a) && slices.ContainsFunc(all, func(other source) bool { return other.prefix.Contains(a) }) {
			return false
		}
	}
	return true
}

// defaultRoute returns the default route by the address's gateway, unless the table's routes have it. It wins over another one.
func (s source) defaultRoute(index int, routes []netlink.Route) []netlink.Route {
	if !s.gateway.IsValid() || slices.ContainsFunc(routes, s.isDefault) {
		return nil
	}
	dst := result.IPNet(netip.PrefixFrom(s.gateway, 0).Masked())
	added := netlink.Route{LinkIndex: index, Dst: &dst, Gw: s.gateway.AsSlice(), Table: s.table, Protocol: protocol}
	if s.gateway.Is6() {
		added.Priority = 1 // the kernel's own choice is 1024
	}
	return []netlink.Route{added}
}

func (s source) isDefault(rt netlink.Route) bool {
	return rt.Table == s.table && result.Prefix(*rt.Dst).Bits() == 0 && result.Addr(rt.Gw) == s.gateway
}

// hintRoutes returns routes to the addresses' own networks that tell programs which address to choose there.
func hintRoutes(index int, sources []source) (hints []netlink.Route) {
	for _, s := range sources {
		network := result.IPNet(s.prefix.Masked())
		if s.prefix.IsSingleIP() || route.Has(hints, route.Main, network) {
			continue
		}
		hint := netlink.Route{LinkIndex: index, Dst: &network, Src: s.prefix.Addr().AsSlice(), Table: route.Main, Protocol: protocol}
		if s.prefix.Addr().Is4() {
			hint.Scope = netlink.SCOPE_LINK
		}
		hints = append(hints, hint)
	}
	return hints
}
