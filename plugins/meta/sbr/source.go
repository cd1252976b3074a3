package sbr

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// config is what the sbr plugin reads of a configuration; docs/plugins/sbr.md explains each key.
type config struct {
	table    int                 // 0 is tables of the attachment's own
	gateways map[bool]netip.Addr // by whether they are IPv4
	hints    bool
	sources  []source
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS, and the addresses of the previous result.
func parse(r *plugin.Request) (*config, error) {
	c, err := readConfig(r.Config)
	if err != nil || r.Command == plugin.Status {
		return c, err
	}
	return c, c.readSources(r)
}

func readConfig(o *conf.Object) (*config, error) {
	c := &config{gateways: map[bool]netip.Addr{}}
	o.Int("table", &c.table)
	if o.Has("table") && (c.table < 1 || int64(c.table) > math.MaxUint32) {
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
		case c.gateways[gateway.Is4()].IsValid():
			o.Fail(key, "at most one IPv4 and one IPv6 address", strconv.Quote(text))
		}
		c.gateways[gateway.Is4()] = gateway
	}
	o.Bool("addSourceHints", &c.hints)
	return c, o.Err()
}

// readSources takes the addresses from the previous result.
func (c *config) readSources(r *plugin.Request) error {
	for i, ip := range result.AddressesOf(r.PrevResult, r.IfName) {
		s := source{prefix: result.Prefix(ip.Address), table: cmp.Or(c.table, ownTable(r.Key, i))}
		s.gateway = cmp.Or(c.gateways[s.prefix.Addr().Is4()], result.Addr(ip.Gateway))
		c.sources = append(c.sources, s)
	}
	switch {
	case len(c.sources) == 0:
		return plugin.ConfigError("sbr routes by addresses: give the plugin before it an ipam section",
			"No IP addresses supplied on interface: %s", r.IfName)
	case c.table == 0 && len(c.sources) > tables:
		return plugin.ConfigError(fmt.Sprintf(`give the interface at most %d addresses, or name a "table"`, tables),
			"interface %s has %d addresses", r.IfName, len(c.sources))
	}
	return nil
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

// rule is what leads packets from the address to the table. The kernel puts it before the rule for the main table.
func (s source) rule() *netlink.Rule {
	src := result.IPNet(result.Single(s.prefix.Addr()))
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Protocol = &src, s.table, protocol
	return rule
}

// leads reports whether a rule leads all packets from the address to some table.
func (s source) leads(rule netlink.Rule) bool {
	plain := *s.rule()
	plain.Family, plain.Priority, plain.Table, plain.Protocol = rule.Family, rule.Priority, rule.Table, rule.Protocol
	return rule.Table != 0 && reflect.DeepEqual(rule, plain)
}

// uses reports whether a route is for packets from the address. A route whose source or gateway is in the network of another address
// is for that one.
func (s source) uses(rt netlink.Route, all []source) bool {
	if result.Addr(rt.Dst.IP).Is4() != s.prefix.Addr().Is4() {
		return false
	}
	for _, ip := range []net.IP{rt.Src, rt.Gw} {
		a := result.Addr(ip)
		isOthers := func(other source) bool { return other.prefix.Contains(a) }
		if a.IsValid() && !s.prefix.Contains(a) && slices.ContainsFunc(all, isOthers) {
			return false
		}
	}
	return true
}

// isDefault reports whether a route is the default route by the address's gateway.
func (s source) isDefault(rt netlink.Route) bool {
	return rt.Table == s.table && result.Prefix(*rt.Dst).Bits() == 0 && result.Addr(rt.Gw) == s.gateway
}

// defaultRoute returns that route, which wins over another one.
func (s source) defaultRoute(index int) netlink.Route {
	dst := result.IPNet(netip.PrefixFrom(s.gateway, 0).Masked())
	added := netlink.Route{LinkIndex: index, Dst: &dst, Gw: s.gateway.AsSlice(), Table: s.table, Protocol: protocol}
	if s.gateway.Is6() {
		added.Priority = 1 // the kernel's own choice is 1024
	}
	return added
}

// plan is what becomes of the interface's routes.
type plan struct {
	own   []netlink.Route // those of the attachment's own tables
	moved []netlink.Route // leave the main table
	hints []netlink.Route // take their place there: to the addresses' own networks, with the address that programs are to choose
}

// hintRoutes returns the routes that tell programs which address to choose, if that is configured.
func (c *config) hintRoutes(index int) (hints []netlink.Route) {
	for _, s := range c.sources {
		network := result.IPNet(s.prefix.Masked())
		if c.hints && !s.prefix.IsSingleIP() && !route.Has(hints, route.Main, network) {
			hints = append(hints, netlink.Route{LinkIndex: index, Dst: &network, Src: s.prefix.Addr().AsSlice(),
				Table: route.Main, Protocol: protocol, Scope: netlink.SCOPE_LINK})
		}
	}
	return hints
}

// hasHint reports whether one of the routes is a hint.
func hasHint(routes []netlink.Route, hint netlink.Route) bool {
	return slices.ContainsFunc(routes, func(rt netlink.Route) bool {
		return rt.Table == hint.Table && rt.Protocol == hint.Protocol && result.Prefix(*rt.Dst) == result.Prefix(*hint.Dst) && rt.Src.Equal(hint.Src)
	})
}

// kernelRoute returns the kernel's route to the network of a hint.
func kernelRoute(hint netlink.Route) netlink.Route {
	hint.Protocol = unix.RTPROT_KERNEL
	if hint.Dst.IP.To4() == nil {
		hint.Src, hint.Priority = nil, 256 // IP6_RT_PRIO_ADDRCONF of linux/ipv6_route.h
	}
	return hint
}

// plan leaves the routes alone if the configuration names a table.
func (c *config) plan(ctx context.Context, h *netlink.Handle, index int) (p plan, err error) {
	if c.table != 0 {
		return p, nil
	}
	p.hints = c.hintRoutes(index)
	routes, err := route.OfLink(ctx, h, index)
	for _, rt := range routes {
		if rt.Table != route.Main {
			continue
		}
		before, isHint := len(p.own), hasHint(p.hints, rt)
		for _, s := range c.sources {
			if !s.uses(rt, c.sources) || isHint && route.Has(routes, s.table, *rt.Dst) {
				continue
			}
			own := rt
			if isHint { // which has taken the place of the kernel's
				own = kernelRoute(rt)
			}
			own.Table = s.table
			p.own = append(p.own, own)
		}
		stays := isHint || c.hints && route.IsDirect(rt) && !route.Has(p.hints, route.Main, *rt.Dst)
		if len(p.own) > before && !stays {
			p.moved = append(p.moved, rt)
		}
	}
	for _, s := range c.sources {
		if s.gateway.IsValid() && !slices.ContainsFunc(append(routes, p.own...), s.isDefault) {
			p.own = slices.Insert(p.own, 0, s.defaultRoute(index))
		}
	}
	return p, err
}
