package nft

import (
	"strings"
)

// checkRules makes sure that the ruleset, and the subnets of the claims, have
// their rules: `nft flush table` takes them and leaves the elements.
func (t *Table) checkRules(claims []claim) error {
	rules, err := t.conn.Rules(table, "")
	if err != nil {
		return err
	}
	count, looksUp := map[string]int{}, map[string]bool{}
	for _, r := range rules {
		looksUp[r.Set] = true
		if !strings.HasPrefix(r.Set, subnetPrefix) {
			count[r.Chain]++
		}
	}
	for _, c := range chains() {
		if count[c.Name] < len(c.Rules) {
			return mismatch("chain %s has %d of its %d rules", c.Name, count[c.Name], len(c.Rules))
		}
	}
	for _, c := range claims {
		if c.record.kind&kindAddress == 0 {
			continue
		}
		if s := subnetOf(c.record.prefix()); !looksUp[s.set.Name] {
			return mismatch("chain %s has no rule for set %s", chainPostrouting, s.set.Name)
		}
	}
	return nil
}
