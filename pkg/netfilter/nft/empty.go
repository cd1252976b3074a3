package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
)

// RemoveIfEmpty removes a table, of anybody, if it is there and does nothing.
func (c *Conn) RemoveIfEmpty(t nftables.Table) error {
	_, empty, err := c.IsEmpty(t)
	if err != nil || !empty {
		return err
	}
	c.DelTable(&t)
	return c.Commit("remove the empty table " + t.Name)
}

// IsEmpty reports whether a table is there and does nothing: it has no rules, no sets, and no chains but base chains that accept
// everything, which it returns.
func (c *Conn) IsEmpty(t nftables.Table) (chains []string, empty bool, err error) {
	there, err := c.HasTables(t)
	if err != nil || !there[0] {
		return nil, false, err
	}
	sets, err := c.GetSets(&t)
	objects, err2 := c.GetNamedObjects(&t)
	list, err3 := c.ListChainsOfTableFamily(t.Family)
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, false, fmt.Errorf("look whether table %s is empty: %w", t.Name, err)
	}
	empty = len(sets)+len(objects) == 0
	for _, chain := range list {
		if chain.Table.Name != t.Name {
			continue
		}
		chains = append(chains, chain.Name)
		rules, err := c.GetRules(&t, chain)
		if err != nil {
			return nil, false, fmt.Errorf("look whether table %s is empty: %w", t.Name, err)
		}
		accepts := chain.Hooknum != nil && chain.Policy != nil && *chain.Policy == nftables.ChainPolicyAccept
		empty = empty && accepts && len(rules) == 0
	}
	return chains, empty, nil
}
