package nft

import (
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkRules makes sure that the rules which claims need are there, of the
// ruleset and of parts: `nft flush table` takes them and leaves the elements.
//
// It lists them all only if a look at less is not enough, which is when something
// is wrong, or the ports are of a group. All are 10 KiB; to do without saves a
// CHECK by bridge or portmap 0.25 ms of 3 (400 processes of either kind in turns,
// Linux 6.18, 2 CPUs).
func (t *Table) checkRules(claims []claim) error {
	complete, err := t.surelyComplete(claims)
	if err != nil || complete {
		return err
	}
	return t.compareRules(claims)
}

// fixedChains are those chains of the ruleset that parts have no rules in, with
// what the kernel counts for each: its rules and the jumps to it.
var fixedChains = [...]struct {
	name string
	uses uint32
}{
	{chainGuard, 2},
	{chainDNAT, 16 + 2},
	{chainPrerouting, 3},
	{chainOutput, 2},
}

// surelyComplete tells whether the rules that claims need are known to be there.
// Counts do for most chains. In postrouting the rules of the ruleset and of parts
// have to be told apart.
func (t *Table) surelyComplete(claims []claim) (bool, error) {
	ports, subnets := false, make([]string, 0, len(claims))
	for i := range claims {
		r := &claims[i].record
		switch {
		case r.kind&kindAddress != 0:
			subnets = append(subnets, subnetOf(r.prefix()).set.Name)
		case r.group().isPlain():
			ports = true
		default:
			return false, nil
		}
	}
	if ports {
		if complete, err := t.portRulesComplete(); err != nil || !complete {
			return false, err
		}
	}
	rules, err := t.conn.Rules(table, chainPostrouting)
	if err != nil {
		return false, err
	}
	ofRuleset := 0
	for _, r := range rules {
		if !ofPart(r) {
			ofRuleset++
		}
	}
	for _, name := range subnets {
		if !slices.ContainsFunc(rules, func(r nftables.Installed) bool { return r.Set == name }) {
			return false, nil
		}
	}
	return ofRuleset > 0, nil
}

// portRulesComplete tells whether the chains have all rules that plain ports
// need, but for postrouting.
func (t *Table) portRulesComplete() (bool, error) {
	names := make([]string, 0, len(fixedChains))
	for _, c := range fixedChains {
		names = append(names, c.name)
	}
	uses, err := t.conn.Uses(table, names...)
	if err != nil {
		return false, err
	}
	for i, c := range fixedChains {
		if uses[i] != c.uses {
			return false, nil
		}
	}
	return true, nil
}

// compareRules compares all rules with those that claims need. Addresses need
// those in postrouting alone.
func (t *Table) compareRules(claims []claim) error {
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
		return plugin.Errorf(fmt.Sprintf("`nft flush table inet %s` or something like it took them: remove the rest of the table with `nft delete table inet %s`, "+
			"and restart the containers", TableName, TableName), "table inet %s: all its rules are missing, so that nothing is published or masqueraded", TableName)
	}
	ports := slices.ContainsFunc(claims, func(c claim) bool { return c.record.kind&kindPort != 0 })
	for _, c := range expected {
		needed := ports || c.Name == chainPostrouting
		if needed && count[c.Name] < len(c.Rules) {
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
