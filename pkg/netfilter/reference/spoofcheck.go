package reference

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// The reference bridge plugin has two chains for each attachment with macspoofchk, in table bridge nat. A rule of its base chain
// jumps to the first, a rule there to the second, which compares the address. The names say the container and the interface, but
// not the network. The table may be somebody else's (ebtables).

func spoofCheckTable() nftables.Table {
	return nftables.Table{Family: nftables.TableFamilyBridge, Name: "nat"}
}

// SpoofCheckTables are the tables in which DelSpoofCheck looks.
func SpoofCheckTables() []nftables.Table { return []nftables.Table{spoofCheckTable()} }

const spoofCheckPrefix = "cni-br-iface-"

// spoofChecks returns the chains of an attachment.
func spoofChecks(k plugin.Key) []string {
	first := spoofCheckPrefix + k.ContainerID + "-" + k.IfName
	return []string{first, first + "-mac"}
}

// HasSpoofCheck reports whether the attachment has a spoof check.
func HasSpoofCheck(c *nft.Conn, key plugin.Key) (bool, error) {
	there, err := c.HasChains(spoofCheckTable(), spoofChecks(key)[0])
	return err == nil && there[0], err
}

// DelSpoofCheck removes the chains of an attachment.
func DelSpoofCheck(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	own := spoofChecks(key)
	return removeSpoofChecks(ctx, c, func(chain string) bool { return slices.Contains(own, chain) })
}

// GCSpoofCheck removes the chains of containers that are neither valid nor in libcni's results. Without those nobody knows which
// they are.
func GCSpoofCheck(ctx context.Context, c *nft.Conn, cache string, valid []plugin.Key) error {
	there, err := c.HasTables(spoofCheckTable())
	if err != nil || !there[0] {
		return err
	}
	known, err := results.Open(cache, plugin.Key{})
	if err != nil || known == nil {
		return err
	}
	keep := map[string]bool{}
	for _, k := range valid {
		for _, chain := range spoofChecks(k) {
			keep[chain] = true
		}
	}
	return removeSpoofChecks(ctx, c, func(chain string) bool {
		name, ok := strings.CutPrefix(chain, spoofCheckPrefix)
		return ok && !keep[chain] && !known.Has(results.Containers(name, "-")...)
	})
}

func removeSpoofChecks(ctx context.Context, c *nft.Conn, isStale func(chain string) bool) error {
	t := spoofCheckTable()
	return change(ctx, c, func() error {
		chains, err := c.ListChainsOfTableFamily(t.Family)
		if err != nil {
			return fmt.Errorf("list the chains of table bridge nat: %w", err)
		}
		chains = slices.DeleteFunc(chains, func(chain *nftables.Chain) bool { return chain.Table.Name != t.Name || !isStale(chain.Name) })
		jumps, err := c.GetRules(&t, &nftables.Chain{Name: "PREROUTING"})
		if err != nil {
			return fmt.Errorf("list the rules of chain PREROUTING of table bridge nat: %w", err)
		}
		deleteRules(c, slices.DeleteFunc(jumps, func(r *nftables.Rule) bool { return !isStale(targetOf(r)) }))
		for _, chain := range chains { // one jumps to the other
			c.FlushChain(chain)
		}
		for _, chain := range chains {
			c.DelChain(chain)
		}
		return nil
	})
}
