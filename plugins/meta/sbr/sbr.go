// Package sbr routes packets by the address they come from: what has an address of the interface as its source leaves by that
// interface, whatever routes the container has by others (source-based routing).
package sbr

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/kernel"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Plugin is the sbr plugin.
type Plugin struct{}

// Add makes a rule for each address of the interface and, unless the configuration names a table, moves the interface's routes into
// tables of its own.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, sources, err := wanted(r)
	if err != nil {
		return nil, err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return nil, err
	}
	if err := checkRules(h, sources); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	if c.table != 0 {
		return r.PrevResult, addRules(ctx, r, h, sources, &undo)
	}
	return r.PrevResult, divert(ctx, r, h, l, sources, c.hints, &undo)
}

// wanted returns what the configuration and the previous result ask for.
func wanted(r *plugin.Request) (*config, []source, error) {
	c, err := parse(r.Config)
	if err != nil {
		return nil, nil, err
	}
	sources := c.sources(r)
	switch {
	case len(sources) == 0:
		return nil, nil, plugin.ConfigError("sbr routes by addresses: give the plugin before it an ipam section",
			"No IP addresses supplied on interface: %s", r.IfName)
	case c.table == 0 && len(sources) > tables:
		return nil, nil, plugin.ConfigError(fmt.Sprintf(`give the interface at most %d addresses, or name a "table"`, tables),
			"interface %s has %d addresses", r.IfName, len(sources))
	}
	return c, sources, nil
}

// checkRules makes sure that none of the rules is there already.
func checkRules(h *netlink.Handle, sources []source) error {
	rules, err := link.Rules(h)
	for _, s := range sources {
		there := func(rule netlink.Rule) bool { return rule.Table == s.table && s.is(rule) }
		if slices.ContainsFunc(rules, there) {
			return plugin.Errorf("call DEL before a second ADD",
				"there is already a rule that leads packets from %s to table %d", s.prefix.Addr(), s.table)
		}
	}
	return err
}

// divert fills the attachment's own tables, has rules lead there, and then takes the routes out of the main table.
func divert(ctx context.Context, r *plugin.Request, h *netlink.Handle, l netlink.Link, sources []source, hints bool, undo *plugin.Undo) error {
	all, err := route.List(h)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(rt netlink.Route) bool { return isOwnTable(r.Key, rt.Table) }); i >= 0 {
		return plugin.Errorf(`call DEL before a second ADD; if something else uses it, name another "table" in sbr's configuration`,
			"table %d has a route already: %s", all[i].Table, route.Describe(all[i]))
	}
	index := l.Attrs().Index
	moved, own := plan(route.Of(all, index), index, sources)

	undo.Push("take the routes back", func(ctx context.Context) error { return errors.Join(takeBack(ctx, r, h, l)) })
	if err := r.Step(ctx, "fill the interface's tables"); err != nil {
		return err
	}
	if err := route.Add(ctx, h, own); err != nil {
		return explain(err)
	}
	if err := addRules(ctx, r, h, sources, undo); err != nil {
		return err
	}
	if err := r.Step(ctx, "empty the main table"); err != nil {
		return err
	}
	var hinted []netlink.Route
	if hints {
		hinted = hintRoutes(index, sources)
		moved = slices.DeleteFunc(moved, func(rt netlink.Route) bool { return route.IsDirect(rt) && !route.Has(hinted, route.Main, *rt.Dst) })
	}
	if err := route.Delete(ctx, h, moved); err != nil {
		return err
	}
	return explain(route.Add(ctx, h, hinted))
}

func addRules(ctx context.Context, r *plugin.Request, h *netlink.Handle, sources []source, undo *plugin.Undo) error {
	for _, s := range sources {
		if err := r.Step(ctx, fmt.Sprintf("lead packets from %s to table %d", s.prefix.Addr(), s.table)); err != nil {
			return err
		}
		rule := s.rule()
		if err := h.RuleAdd(rule); err != nil {
			return fmt.Errorf("add the rule for packets from %s: %w", s.prefix.Addr(), err)
		}
		undo.Push("delete the rule", func(context.Context) error { return deleteRule(h, rule) })
	}
	return nil
}

// deleteRule deletes a rule, unless it is gone.
func deleteRule(h *netlink.Handle, rule *netlink.Rule) error {
	if err := h.RuleDel(rule); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the rule that leads packets from %s to table %d: %w", rule.Src, rule.Table, err)
	}
	return nil
}

// explain adds what to do about a route that the kernel refuses.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL):
		return plugin.Errorf("a gateway must be reachable through an address of the interface: correct it, or the subnet", "%v", err)
	case errors.Is(err, unix.ENETDOWN):
		return plugin.Errorf("a plugin before sbr in the chain must set the interface up", "%v", err)
	}
	return err
}

// Status reports whether containers can be entered, and the kernel has rules.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	_, err := parse(r.Config)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err != nil {
		return err
	}
	if _, err := link.Rules(r.Links()); err != nil {
		return &kernel.Missing{Feature: "routing by rules", Option: "CONFIG_IP_MULTIPLE_TABLES", Err: err}
	}
	return nil
}

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
