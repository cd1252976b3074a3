package reference

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

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
			known, err := results.Open(cache, plugin.Key{})
			if err != nil || known == nil {
				return err
			}
			var keep []string
			for _, k := range valid {
				keep = append(keep, spoofChecks(k)...)
			}
			return remove(ctx, c, func(chain string) bool {
				name, ok := strings.CutPrefix(chain, spoofCheckPrefix)
				return ok && !slices.Contains(keep, chain) && !known.Has(results.Containers(name, "-")...)
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
