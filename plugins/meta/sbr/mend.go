package sbr

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Mend looks for the rule of each address and, unless the configuration names the table, for the routes that it leads to. A table
// that the reference plugin has chosen will do. Routes that the plugin before in the chain has put back into the main table are moved into the
// interface's own, as by ADD.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	if r.HostSide {
		return nil
	}
	c, err := parse(r)
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
	for i := range c.sources {
		s := &c.sources[i]
		if at := c.ruleOf(*s, rules); at >= 0 {
			s.table = rules[at].Table
			continue
		}
		address := s.prefix.Addr()
		m.Mend(attach.Different("no rule leads packets from %s to their table", address), fmt.Sprintf("lead packets from %s to table %d", address, s.table), func() error {
			if err := h.RuleAdd(s.rule()); err != nil {
				return fmt.Errorf("add the rule for packets from %s: %w", address, err)
			}
			return nil
		})
	}
	index := l.Attrs().Index
	routes, err := route.OfLink(ctx, h, index)
	if err != nil || c.table != 0 {
		return err
	}
	m.Mend(c.checkTables(r, routes, index), "", func() error {
		p, err := c.plan(ctx, h, index)
		if err != nil {
			return err
		}
		if len(p.own)+len(p.moved)+len(p.hints) > 0 {
			r.Announce("fill the interface's tables")
		}
		if err := route.Add(ctx, h, p.own); err != nil { // until they are filled packets go by the main table
			return withRemedy(err)
		}
		return errors.Join(route.Delete(ctx, h, p.moved), withRemedy(route.Add(ctx, h, p.hints)))
	})
	return nil
}

// checkTables looks for the routes for packets from each address, and those that tell programs which address to choose.
func (c *config) checkTables(r *plugin.Request, routes []netlink.Route, index int) error {
	for _, s := range c.sources {
		if s.gateway.IsValid() && !slices.ContainsFunc(routes, s.isDefault) {
			return attach.Different("table %d, for packets from %s, has no default route by %s", s.table, s.prefix.Addr(), s.gateway)
		}
		for _, w := range r.PrevResult.Routes {
			want := netlink.Route{Dst: &w.Dst, Gw: w.GW}
			if w.Table == nil && s.uses(want, c.sources) && !route.Has(routes, s.table, w.Dst) {
				return attach.Different("table %d, for packets from %s, has no route to %s", s.table, s.prefix.Addr(), route.Describe(want))
			}
		}
	}
	for _, hint := range c.hintRoutes(index) {
		if !hasHint(routes, hint) {
			return attach.Different("the main table has no route to %s with the source %s", hint.Dst, hint.Src)
		}
	}
	return nil
}

// ruleOf returns which rule leads packets from an address to their table, -1 if none does.
func (c *config) ruleOf(s source, rules []netlink.Rule) int {
	return slices.IndexFunc(rules, func(rule netlink.Rule) bool { return s.leads(rule) && (c.table == 0 || rule.Table == c.table) })
}
