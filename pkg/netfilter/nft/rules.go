package nft

import (
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkRules makes sure that the ruleset, and the parts that claims need, have
// their rules: `nft flush table` takes them and leaves the elements.
func (t *Table) checkRules(claims []claim) error {
	rules, err := t.conn.Rules(table, "")
	if err != nil {
		return err
	}
	count, leads := map[string]int{}, map[string]bool{}
	for _, r := range rules {
		leads[r.Chain+" "+r.Set], leads[r.Chain+" "+r.Jump] = true, true
		if !ofPart(r) {
			count[r.Chain]++
		}
	}
	expected := chains()
	parts := partsOf(claims)
	for i := range parts {
		expected = append(expected, parts[i].chains...)
	}
	left := 0
	for _, c := range expected {
		left += count[c.Name]
	}
	if left == 0 {
		return plugin.Errorf("table inet %s: all its rules are missing, so that nothing is published or masqueraded", TableName).
			WithDetails("`nft flush table inet %s` or something like it took them: remove the rest of the table with `nft delete table inet %s`, "+
				"and restart the containers", TableName, TableName)
	}
	for _, c := range expected {
		if count[c.Name] < len(c.Rules) {
			return mismatch("chain %s has %d of its %d rules", c.Name, count[c.Name], len(c.Rules))
		}
	}
	for i := range parts {
		if err := parts[i].checkEntries(leads); err != nil {
			return err
		}
	}
	return nil
}

// ofPart tells whether a rule stands in a chain of the ruleset for a part.
func ofPart(r nftables.Installed) bool {
	if _, inside := partOf(r.Chain); inside {
		return false
	}
	_, set := partOf(r.Set)
	_, jump := partOf(r.Jump)
	return set || jump
}

// checkEntries makes sure that packets come to the part. What rules lead to is
// given as "chain target".
func (p *part) checkEntries(leads map[string]bool) error {
	for _, e := range p.entries {
		found := false
		for i := range p.sets {
			found = found || leads[e.chain+" "+p.sets[i].Name]
		}
		for _, c := range p.chains {
			found = found || leads[e.chain+" "+c.Name]
		}
		if !found {
			return mismatch("chain %s has no rule for set %s", e.chain, p.sets[0].Name)
		}
	}
	return nil
}
