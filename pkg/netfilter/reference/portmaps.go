package reference

import (
	"bytes"
	"context"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// PortRules is what portmap has, for a request's attachment and network. The rules say the container, but neither the network nor the
// interface. It implements plugin.Store.
type PortRules struct{ *plugin.Request }

// Tables are those with its rules.
func (PortRules) Tables() []nftables.Table {
	return []nftables.Table{{Family: nftables.TableFamilyIPv4, Name: "cni_hostport"}, {Family: nftables.TableFamilyIPv6, Name: "cni_hostport"}}
}

// chains has what is published on one address second, as it was until 1.8.
func (PortRules) chains() []string { return []string{"hostports", "hostip_hostports", "masquerading"} }

// ownerIn returns the id of the container.
func (PortRules) ownerIn(r *nftables.Rule) string {
	for _, e := range r.Exprs {
		switch e.(type) {
		case *expr.NAT, *expr.Masq:
			return nft.CommentIn(r.UserData)
		}
	}
	return ""
}

// leadsTo reports whether a rule redirects to one of the addresses, or is about packets to it. nft compares both addresses of a
// packet at once where they fit into one register.
func leadsTo(r *nftables.Rule, addrs []netip.Prefix) bool {
	return slices.ContainsFunc(addrs, func(a netip.Prefix) bool {
		return slices.ContainsFunc(r.Exprs, func(e expr.Any) bool {
			switch e := e.(type) {
			case *expr.Immediate:
				return bytes.Equal(e.Data, a.Addr().AsSlice())
			case *expr.Cmp:
				return bytes.HasSuffix(e.Data, a.Addr().AsSlice())
			}
			return false
		})
	})
}

// LeadsTo reports whether the container has rules that lead to all of some addresses.
func (p PortRules) LeadsTo(ctx context.Context, c *nft.Conn, addrs []netip.Prefix) (bool, error) {
	return leadTo(ctx, c, p, p.ContainerID, addrs)
}

// Del removes the rules that lead to one of the addresses that the attachment had, or if they are not known, all of the container's
// unless libcni's results have another attachment of it. The DEL of the last one removes what is left that way.
func (p PortRules) Del(ctx context.Context, c *nft.Conn, hint []netip.Prefix) error {
	if len(hint) == 0 {
		others, err := cache.Open(p.Results, p.Key)
		if err != nil || others.MayHave(p.ContainerID) {
			return err
		}
	}
	return remove(ctx, c, p, map[string]bool{p.ContainerID: true}, hint)
}

// Held lists the containers that have rules, of whatever network. An ADD of the reference plugin that is under way has rules and no result
// yet: the old portmap and GC must not be in use at the same time.
func (p PortRules) Held(ctx context.Context, _ string) (list []plugin.Held, err error) {
	containers, err := owners(ctx, p)
	for _, id := range containers {
		list = append(list, plugin.Held{Key: plugin.Key{ContainerID: id}, What: "published ports of the reference plugin", Own: id})
	}
	return list, err
}

// Release removes it.
func (p PortRules) Release(ctx context.Context, list []plugin.Held) error {
	return release(ctx, p, list)
}
