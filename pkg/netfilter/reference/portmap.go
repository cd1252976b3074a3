package reference

import (
	"bytes"
	"context"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// PortMaps is what portmap has. The rules say the container, but neither the network nor the interface; cache is the directory of libcni's
// results, which say what else the container has.
//
// Del removes the rules that lead to one of the addresses that the attachment had, or if they are not known, all of the container's
// unless it has another attachment. The DEL of the last one removes what is left that way.
//
// GC removes those of containers that are neither valid in this network nor attached to any other. Without libcni's results nothing is
// known of other networks, and nothing is removed. An ADD of the reference plugin that is under way in another network has rules and no
// result yet: the old portmap and GC must not be in use at the same time.
func PortMaps(cache string) Use {
	tables := []nftables.Table{{Family: nftables.TableFamilyIPv4, Name: "cni_hostport"}, {Family: nftables.TableFamilyIPv6, Name: "cni_hostport"}}
	remove := func(ctx context.Context, c *nft.Conn, isStale func(*nftables.Rule) bool) error {
		// Until 1.8 the second chain had what is published on one address.
		return stale{rule: isStale}.remove(ctx, c, tables, "hostports", "hostip_hostports", "masquerading")
	}
	return Use{
		Tables: tables,
		Del: func(ctx context.Context, c *nft.Conn, key plugin.Key, hint []netip.Prefix) error {
			if len(hint) == 0 {
				others, err := results.Open(cache, key)
				if err != nil || others.Has(key.ContainerID) {
					return err
				}
			}
			return remove(ctx, c, func(r *nftables.Rule) bool {
				return publisher(r) == key.ContainerID && (len(hint) == 0 || leadsTo(r, hint))
			})
		},
		GC: func(ctx context.Context, c *nft.Conn, _ string, valid []plugin.Key) error {
			known, err := results.Open(cache, plugin.Key{})
			if err != nil || known == nil {
				return err
			}
			keep := map[string]bool{"": true}
			for _, k := range valid {
				keep[k.ContainerID] = true
			}
			return remove(ctx, c, func(r *nftables.Rule) bool {
				id := publisher(r)
				return !keep[id] && !known.Has(id)
			})
		},
	}
}

// publisher returns the id of the container that a rule is for, "" if it is not one of portmap's.
func publisher(r *nftables.Rule) (containerID string) {
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
