// Package sbr routes packets by the address they come from: what has an address of the interface as its source leaves by that
// interface, whatever routes the container has by others (source-based routing).
package sbr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// Plugin is the sbr plugin.
type Plugin struct{}

// Add makes a rule for each address of the interface and, unless the configuration names a table, moves the interface's routes into
// tables of its own. Until these are filled packets go by the main table.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return nil, err
	}
	rules, err := link.Rules(h)
	if err != nil {
		return nil, err
	}
	p, err := c.plan(ctx, h, l.Attrs().Index)
	if err != nil {
		return nil, err
	}

	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	for _, s := range c.sources {
		if err := r.Step(ctx, fmt.Sprintf("lead packets from %s to table %d", s.prefix.Addr(), s.table)); err != nil {
			return nil, err
		}
		rule := s.rule()
		isSame := func(other netlink.Rule) bool { return other.Table == s.table && s.leads(other) }
		if slices.ContainsFunc(rules, isSame) { // the kernel would take it twice
			return nil, plugin.Errorf("call DEL before a second ADD", "there is already a rule that leads packets from %s to table %d", rule.Src, rule.Table)
		}
		if err := h.RuleAdd(rule); err != nil {
			return nil, fmt.Errorf("add the rule for packets from %s: %w", rule.Src, err)
		}
		undo.Push("delete the rule", func(context.Context) error { return deleteRule(h, *rule) })
	}
	if err := r.Step(ctx, "fill the interface's tables"); err != nil {
		return nil, err
	}
	undo.Push("empty the interface's tables", func(ctx context.Context) error { return route.Delete(ctx, h, p.own) })
	if err := route.Add(ctx, h, p.own); err != nil {
		return nil, withRemedy(err)
	}
	if err := r.Step(ctx, "empty the main table"); err != nil {
		return nil, err
	}
	undo.Push("put the routes back", func(ctx context.Context) error {
		return errors.Join(route.Delete(ctx, h, p.hints), route.Add(ctx, h, p.moved))
	})
	if err := route.Delete(ctx, h, p.moved); err != nil {
		return nil, err
	}
	return r.PrevResult, withRemedy(route.Add(ctx, h, p.hints))
}

// withRemedy adds what to do about a route that the kernel refuses.
func withRemedy(err error) error {
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL):
		return plugin.ConfigError("a gateway must be reachable through an address of the interface: correct it, or the subnet", "%w", err)
	case errors.Is(err, unix.ENETDOWN):
		return plugin.ConfigError("a plugin before sbr in the chain must set the interface up", "%w", err)
	}
	return err
}

// deleteRule deletes a rule, unless it is gone. It names no more of it than is needed: a container can make rules that can't be written
// in full.
func deleteRule(h *netlink.Handle, rule netlink.Rule) error {
	named := netlink.NewRule()
	named.Family, named.Priority, named.Src, named.Table, named.Protocol = rule.Family, rule.Priority, rule.Src, rule.Table, rule.Protocol
	if err := h.RuleDel(named); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the rule that leads packets from %s to table %d: %w", rule.Src, rule.Table, err)
	}
	return nil
}

// firstReferenceTable is the first that the reference plugin chooses. It does not mark its rules.
const firstReferenceTable = 100

// Del deletes the rules to the attachment's own tables, whoever made them, and those from its addresses to a table that was named. The routes
// go with the interface, which the plugin before in the chain deletes next.
func (Plugin) Del(_ context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	r.Announce("delete the rules")
	rules, err := link.Rules(h)
	r.WarnOf(err)
	addresses, err := ownAddresses(h, r)
	r.WarnOf(err)
	table := 0
	r.Config.Int("table", &table)
	for _, rule := range rules {
		leads := func(a netip.Prefix) bool { return source{prefix: a}.leads(rule) }
		isReference := rule.Protocol == unix.RTPROT_UNSPEC && (rule.Table == table || table == 0 && rule.Table >= firstReferenceTable)
		isNamed := (rule.Protocol == protocol || isReference) && slices.ContainsFunc(addresses, leads)
		if isNamed || isOwnTable(r.Key, rule.Table) {
			r.WarnOf(deleteRule(h, rule))
		}
	}
	return nil
}

// ownAddresses returns the attachment's addresses: none if another container has an interface of that name there by now.
func ownAddresses(h *netlink.Handle, r *plugin.Request) ([]netip.Prefix, error) {
	l, err := h.LinkByName(r.IfName)
	switch {
	case link.IgnoreNotFound(err) != nil || err == nil && !attach.IsOwn(r, l):
		return nil, link.IgnoreNotFound(err)
	case err != nil || r.PrevResult != nil:
		return result.PrefixesOf(r.PrevResult, r.IfName), nil
	}
	addresses, err := link.Addresses(h, l, netlink.FAMILY_ALL)
	own := make([]netip.Prefix, len(addresses))
	for i, a := range addresses {
		own[i] = result.Prefix(*a.IPNet)
	}
	return own, err
}

// Status reports whether containers can be entered, and the kernel has rules.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	_, err := parse(r)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err != nil {
		return err
	}
	_, err = link.Rules(r.Links())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return &plugin.MissingFeature{Name: "routing by rules", Option: "CONFIG_IP_MULTIPLE_TABLES", Err: err}
	}
	if err != nil {
		return plugin.CodeErrorf(types.ErrPluginNotAvailable, "sbr lists the host's rules to see whether it can work: let it", "list rules: %w", err)
	}
	return nil
}
