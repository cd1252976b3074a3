package reference

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// SpoofChains is what bridge has: two chains for each attachment with macspoofchk. A rule of the base chain jumps to the first, a rule
// there to the second, which compares the address. The names say the container and the interface, but not the network. It implements
// plugin.Store, and is for a request's attachment and network.
type SpoofChains struct{ *plugin.Request }

// Tables are those with its rules; it may be somebody else's (ebtables).
func (SpoofChains) Tables() []nftables.Table {
	return []nftables.Table{{Family: nftables.TableFamilyBridge, Name: "nat"}}
}

func (SpoofChains) chains() []string { return []string{"PREROUTING"} }

const spoofCheckPrefix = "cni-br-iface-"

// ownerIn returns the chain that the rule jumps to.
func (SpoofChains) ownerIn(r *nftables.Rule) string {
	if chain := nft.TargetOf(r); strings.HasPrefix(chain, spoofCheckPrefix) {
		return chain
	}
	return ""
}

// firstChain is the first of an attachment's two.
func firstChain(k plugin.Key) string { return spoofCheckPrefix + k.ContainerID + "-" + k.IfName }

// LeadsTo reports whether the attachment has a spoof check: it is for all addresses.
func (s SpoofChains) LeadsTo(_ context.Context, c *nft.Conn, _ []netip.Prefix) (bool, error) {
	there, err := c.HasChains(s.Tables()[0], firstChain(s.Key))
	return err == nil && there[0], nil
}

// Del removes what the attachment has.
func (s SpoofChains) Del(ctx context.Context, c *nft.Conn, _ []netip.Prefix) error {
	return remove(ctx, c, s, map[string]bool{firstChain(s.Key): true}, nil)
}

// removeChains removes the two chains of each owner.
func removeChains(c *nft.Conn, owners map[string]bool) error {
	list, err := spoofCheckChains(c)
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(list, func(chain *nftables.Chain) bool {
		return !owners[strings.TrimSuffix(chain.Name, "-mac")] && !owners[chain.Name]
	})
	for _, chain := range gone { // one may jump to another
		c.FlushChain(chain)
	}
	for _, chain := range gone {
		c.DelChain(chain)
	}
	return nil
}

func spoofCheckChains(c *nft.Conn) ([]*nftables.Chain, error) {
	table := SpoofChains{}.Tables()[0]
	list, err := c.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return nil, fmt.Errorf("list the chains of table %s: %w", table.Name, err)
	}
	return slices.DeleteFunc(list, func(chain *nftables.Chain) bool {
		return chain.Table.Name != table.Name || !strings.HasPrefix(chain.Name, spoofCheckPrefix)
	}), nil
}

// Held lists it.
func (s SpoofChains) Held(context.Context, string) (list []plugin.Held, err error) {
	c, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	there, err := c.HasTables(s.Tables()...)
	if err != nil || !there[0] {
		return nil, err
	}
	chains, err := spoofCheckChains(c)
	for _, chain := range chains {
		mayBe := cache.Containers(strings.TrimPrefix(chain.Name, spoofCheckPrefix), "-")
		list = append(list, plugin.Held{MayBe: mayBe, What: "spoof check of the reference plugin", Own: chain.Name})
	}
	return list, err
}

// Release removes it.
func (s SpoofChains) Release(ctx context.Context, list []plugin.Held) error {
	return release(ctx, s, list)
}
