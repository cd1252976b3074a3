// Package reference removes what the reference plugins (github.com/containernetworking/plugins, 1.6.0 to 1.9.1) have left in
// nftables: rules in tables of their own, whose comments and chains say whose they are. The tables stay, as with those plugins: an
// ADD of theirs may be about to use one.
package reference

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// Use is what the reference plugins have nftables for. Del and GC are for when one of the tables is there.
type Use struct {
	Tables []nftables.Table
	// Del removes what an attachment has. hint is the addresses that it had, nil if they are not known.
	Del func(ctx context.Context, c *nft.Conn, key plugin.Key, hint []netip.Prefix) error
	// GC removes what attachments of the network have that are not valid.
	GC func(ctx context.Context, c *nft.Conn, network string, valid []plugin.Key) error
}

// Masquerade is what bridge and ptp have. The comments of rules begin with the attachment's hash; what follows is for people, and may
// be cut.
func Masquerade() Use {
	tables := []nftables.Table{{Family: nftables.TableFamilyINet, Name: "cni_plugins_masquerade"}}
	remove := func(ctx context.Context, c *nft.Conn, isStale func(owner string) bool) error {
		return stale{rule: func(r *nftables.Rule) bool {
			owner, _, _ := strings.Cut(nft.CommentIn(r.UserData), ",")
			return isStale(owner)
		}}.remove(ctx, c, tables, "masq_checks")
	}
	return Use{
		Tables: tables,
		Del: func(ctx context.Context, c *nft.Conn, key plugin.Key, _ []netip.Prefix) error {
			own := attachmentHash(key)
			return remove(ctx, c, func(owner string) bool { return owner == own })
		},
		GC: func(ctx context.Context, c *nft.Conn, network string, valid []plugin.Key) error {
			keep := map[string]bool{}
			for _, k := range valid {
				keep[attachmentHash(k)] = true
			}
			return remove(ctx, c, func(owner string) bool { return strings.HasPrefix(owner, hash(network)+"-") && !keep[owner] })
		},
	}
}

func attachmentHash(k plugin.Key) string {
	return hash(k.Network) + "-" + hash(k.IfName+":"+k.ContainerID)
}

func hash(text string) string {
	const bytes = 8
	sum := sha512.Sum512([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}

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
				if err != nil || others.MayHave(key.ContainerID) {
					return err
				}
			}
			return remove(ctx, c, func(r *nftables.Rule) bool {
				return publisher(r) == key.ContainerID && (len(hint) == 0 || leadsTo(r, hint))
			})
		},
		GC: func(ctx context.Context, c *nft.Conn, _ string, valid []plugin.Key) error {
			isGone, err := goneContainers(cache, valid)
			if err != nil {
				return err
			}
			return remove(ctx, c, func(r *nftables.Rule) bool {
				id := publisher(r)
				return id != "" && isGone(id)
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

// spoofCheckTable may be somebody else's (ebtables).
func spoofCheckTable() nftables.Table {
	return nftables.Table{Family: nftables.TableFamilyBridge, Name: "nat"}
}

// SpoofCheck is what bridge has: two chains for each attachment with macspoofchk. A rule of the base chain jumps to the first, a rule
// there to the second, which compares the address. The names say the container and the interface, but not the network: GC needs
// libcni's results, of which cache is the directory, to know what is gone.
func SpoofCheck(cache string) Use {
	tables := []nftables.Table{spoofCheckTable()}
	remove := func(ctx context.Context, c *nft.Conn, isStale func(chain string) bool) error {
		isJump := func(r *nftables.Rule) bool { return isStale(nft.TargetOf(r)) }
		return stale{rule: isJump, chain: isStale}.remove(ctx, c, tables, "PREROUTING")
	}
	return Use{
		Tables: tables,
		Del: func(ctx context.Context, c *nft.Conn, key plugin.Key, _ []netip.Prefix) error {
			own := spoofChecks(key)
			return remove(ctx, c, func(chain string) bool { return slices.Contains(own, chain) })
		},
		GC: func(ctx context.Context, c *nft.Conn, _ string, valid []plugin.Key) error {
			isGone, err := goneContainers(cache, valid)
			if err != nil {
				return err
			}
			return remove(ctx, c, func(chain string) bool {
				name, ok := strings.CutPrefix(chain, spoofCheckPrefix)
				return ok && isGone(results.Containers(name, "-")...)
			})
		},
	}
}

const spoofCheckPrefix = "cni-br-iface-"

// spoofChecks returns the chains of an attachment.
func spoofChecks(k plugin.Key) []string {
	first := spoofCheckPrefix + k.ContainerID + "-" + k.IfName
	return []string{first, first + "-mac"}
}

// HasSpoofCheck reports whether the attachment has a spoof check.
func HasSpoofCheck(c *nft.Conn, key plugin.Key) bool {
	there, err := c.HasChains(spoofCheckTable(), spoofChecks(key)[0])
	return err == nil && there[0]
}

// goneContainers returns whether containers are neither valid in the network nor in libcni's results with any other. Without those nothing
// is known of other networks, and none is gone.
func goneContainers(cache string, valid []plugin.Key) (isGone func(ids ...string) bool, err error) {
	known, err := results.Open(cache, plugin.Key{})
	isValid := map[string]bool{}
	for _, k := range valid {
		isValid[k.ContainerID] = true
	}
	return func(ids ...string) bool {
		return known != nil && !slices.ContainsFunc(ids, func(id string) bool { return isValid[id] }) && !known.MayHave(ids...)
	}, err
}

// stale is what is to be removed: rules, and chains that attachments have for themselves.
type stale struct {
	rule  func(*nftables.Rule) bool
	chain func(name string) bool // nil if there are none
}

// remove removes what is stale in tables. Rules are in some chains that all attachments have in common; what is not there has none.
func (s stale) remove(ctx context.Context, c *nft.Conn, tables []nftables.Table, common ...string) error {
	const what = "remove what the reference plugins made in nftables"
	return nft.Change(ctx, what, func() error {
		var rules []*nftables.Rule
		var chains []*nftables.Chain
		for _, t := range tables {
			for _, name := range common {
				list, err := c.GetRules(&t, &nftables.Chain{Name: name})
				if err := errors.Join(ctx.Err(), err); err != nil {
					return fmt.Errorf("list the rules of chain %s of table %s: %w", name, t.Name, err)
				}
				rules = append(rules, slices.DeleteFunc(list, func(r *nftables.Rule) bool { return !s.rule(r) })...)
			}
			if s.chain == nil {
				continue
			}
			list, err := c.ListChainsOfTableFamily(t.Family)
			if err != nil {
				return fmt.Errorf("list the chains of table %s: %w", t.Name, err)
			}
			chains = append(chains, slices.DeleteFunc(list, func(c *nftables.Chain) bool { return c.Table.Name != t.Name || !s.chain(c.Name) })...)
		}
		c.DeleteRules(rules)
		for _, chain := range chains { // one may jump to another
			c.FlushChain(chain)
		}
		for _, chain := range chains {
			c.DelChain(chain)
		}
		return c.Commit(what)
	})
}
