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
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/route"
)

// Del gives the interface's routes back to the main table, and deletes the rules. What the container keeps it from goes with the namespace,
// as all of it does.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	if r.NS() == nil {
		return nil
	}
	h, err := r.LinksInside()
	if err != nil {
		return err
	}
	r.WarnOf(removeAll(ctx, r, h))
	return nil
}

// removeAll leaves an interface alone that is not the attachment's, with the rules for its addresses. Those to the attachment's own tables
// are nobody else's.
func removeAll(ctx context.Context, r *plugin.Request, h *netlink.Handle) error {
	var left error
	addresses := result.PrefixesOf(r.PrevResult, r.IfName)
	l, err := h.LinkByName(r.IfName)
	switch {
	case link.IsNotFound(err): // the routes went with it
		err = nil
	case err != nil || !attach.IsOwn(r, l):
		addresses = nil
	default:
		r.Announce("take the routes back")
		_, left = takeBack(ctx, r, h, l) // a route whose address or gateway has gone since ADD leads nowhere
		if r.PrevResult == nil {
			addresses, err = addressesOf(h, l)
		}
	}
	r.Announce("delete the rules")
	return errors.Join(err, left, deleteRules(r, h, addresses))
}

// takeBack moves the routes in the attachment's own tables to the main one. It returns which of them the kernel refused there, and what
// could not be deleted.
func takeBack(ctx context.Context, r *plugin.Request, h *netlink.Handle, l netlink.Link) (refused, left error) {
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
func deleteRules(r *plugin.Request, h *netlink.Handle, addresses []netip.Prefix) error {
	rules, err := link.Rules(h)
	errs := []error{err}
	for _, rule := range rules {
		from := func(p netip.Prefix) bool { return source{prefix: single(p.Addr())}.is(rule) }
		switch {
		case isOwnTable(r.Key, rule.Table): // somebody else's too, which may be one that can't be written in full
			leading := netlink.NewRule()
			leading.Family, leading.Priority, leading.Table, leading.Src = rule.Family, rule.Priority, rule.Table, rule.Src
			errs = append(errs, deleteRule(h, leading))
		case isNamed(rule, locate(r.Config).table) && slices.ContainsFunc(addresses, from):
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

// addressesOf returns the addresses that the interface has.
func addressesOf(h *netlink.Handle, l netlink.Link) (list []netip.Prefix, err error) {
	addresses, err := link.Addresses(h, l, netlink.FAMILY_ALL)
	for _, a := range addresses {
		list = append(list, result.Prefix(*a.IPNet))
	}
	return list, err
}
