package sbr

import (
	"context"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Check looks for the rule of each address and, unless the configuration names the table, for the routes that it leads to. A table
// that the reference plugin has chosen will do.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, sources, err := wanted(r)
	if err != nil {
		return err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return err
	}
	rules, err := link.Rules(h)
	if err != nil {
		return err
	}
	all, err := route.List(h)
	if err != nil {
		return err
	}
	routes := route.Of(all, l.Attrs().Index)
	for _, s := range sources {
		i := slices.IndexFunc(rules, func(rule netlink.Rule) bool { return s.is(rule) && (c.table == 0 || rule.Table == c.table) })
		if i < 0 {
			return plugin.Errorf(attach.Repair, "no rule leads packets from %s to their table", s.prefix.Addr())
		}
		if s.table = rules[i].Table; c.table != 0 {
			continue
		}
		if err := s.check(routes, r.PrevResult.Routes, sources); err != nil {
			return err
		}
	}
	return nil
}

// check looks for the address's default route, and for those routes of the result that are for it.
func (s source) check(routes []netlink.Route, result []*types.Route, all []source) error {
	if s.gateway.IsValid() && !slices.ContainsFunc(routes, s.isDefault) {
		return plugin.Errorf(attach.Repair, "table %d, for packets from %s, has no default route by %s", s.table, s.prefix.Addr(), s.gateway)
	}
	for _, w := range result {
		want := netlink.Route{Dst: &w.Dst, Gw: w.GW, Family: netlink.FAMILY_V6}
		if w.Dst.IP.To4() != nil {
			want.Family = netlink.FAMILY_V4
		}
		if w.Table == nil && s.uses(want, all) && !route.Has(routes, s.table, w.Dst) {
			return plugin.Errorf(attach.Repair, "table %d, for packets from %s, has no route to %s", s.table, s.prefix.Addr(), route.Describe(want))
		}
	}
	return nil
}
