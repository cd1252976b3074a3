package sbr

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Del gives the interface's routes back to the main table, and deletes the rules. What is in a namespace that is gone went with it.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	r.Announce("take the routes back")
	_, left := takeBack(ctx, r, h) // a route whose address or gateway has gone since ADD leads nowhere
	r.Announce("delete the rules")
	return errors.Join(left, deleteRules(r, h))
}

// takeBack moves the routes in the attachment's own tables to the main one. It returns which of them the kernel refused there, and what
// could not be deleted.
func takeBack(ctx context.Context, r *plugin.Request, h *netlink.Handle) (refused, left error) {
	l, err := h.LinkByName(r.IfName)
	if err != nil {
		return nil, link.IgnoreNotFound(err) // the routes went with the interface
	}
	all, err := route.List(h)
	if err != nil {
		return nil, err
	}
	var added, moved, back []netlink.Route
	for _, rt := range route.Of(all, l.Attrs().Index) {
		isOwn := isOwnTable(r.Key, rt.Table)
		switch {
		case rt.Protocol == protocol && (isOwn || rt.Table == route.Main):
			added = append(added, rt)
		case isOwn:
			moved = append(moved, rt)
			back = append(back, route.In(rt, route.Main))
		}
	}
	left = route.Delete(ctx, h, added)
	refused = route.Add(ctx, h, back)
	return refused, errors.Join(left, route.Delete(ctx, h, moved))
}

// deleteRules deletes the rules to the attachment's own tables, and those from its addresses to a table that the configuration named or
// that the reference plugin has chosen.
func deleteRules(r *plugin.Request, h *netlink.Handle) error {
	rules, err := link.Rules(h)
	if err != nil {
		return err
	}
	addresses, err := addressesOf(r, h)
	errs := []error{err}
	for _, rule := range rules {
		from := func(a netip.Addr) bool { return source{prefix: single(a)}.is(rule) }
		if isOwnTable(r.Key, rule.Table) || isNamed(rule, locate(r.Config).table) && slices.ContainsFunc(addresses, from) {
			errs = append(errs, deleteRule(h, &rule))
		}
	}
	return errors.Join(errs...)
}

// firstTable is the first that the reference plugin chooses.
const firstTable = 100

// isNamed reports whether a rule leads to a table that the configuration named, or can be one of the reference plugin, which does not
// mark its rules.
func isNamed(rule netlink.Rule, table int) bool {
	switch rule.Protocol {
	case protocol:
		return rule.Table < firstOwnTable || rule.Table == table
	case unix.RTPROT_UNSPEC:
		return rule.Table == table || table == 0 && rule.Table >= firstTable
	}
	return false
}

// addressesOf returns the addresses that the interface has been given: those that it has, if the runtime does not tell.
func addressesOf(r *plugin.Request, h *netlink.Handle) (list []netip.Addr, err error) {
	if r.PrevResult != nil {
		for _, p := range r.PrevAddresses() {
			list = append(list, p.Addr())
		}
		return list, nil
	}
	l, err := h.LinkByName(r.IfName)
	if err != nil || !attach.IsOwn(r, l) {
		return nil, link.IgnoreNotFound(err)
	}
	addresses, err := link.Addresses(h, l, netlink.FAMILY_ALL)
	for _, a := range addresses {
		list = append(list, plugin.Addr(a.IP))
	}
	return list, err
}
