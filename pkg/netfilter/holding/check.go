package holding

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Check compares what the holder has with the things that it should have, and
// makes sure that the table has its rules.
func (t *Table) Check(ctx context.Context, h Holder, things []Thing) error {
	held, _, err := t.held(ctx, h.ID)
	if err != nil {
		return err
	}
	if len(held) == 0 && len(things) > 0 {
		return t.absence(h)
	}
	if !slices.EqualFunc(held, things, func(x, y Thing) bool { return bytes.Equal(x.Data, y.Data) }) {
		return t.mismatch("what %s holds is not what it should hold", h.Comment)
	}
	if err := t.checkElements(h, things); err != nil {
		return err
	}
	return t.checkRules()
}

func (t *Table) absence(h Holder) error {
	found, err := t.Conn.HasTable(t.Table)
	switch {
	case err != nil:
		return t.explain(nil, err)
	case !found:
		return plugin.Errorf(fmt.Sprintf("`nft flush ruleset` (a reload of nftables.service does that) or `nft delete table %s` took it: "+
			"restart the containers; the next ADD makes the table again", t.Table), "table %s is missing, and with it what all attachments of this host had in it", t.Table)
	}
	return t.mismatch("%s has nothing in it", h.Comment)
}

func (t *Table) checkElements(h Holder, things []Thing) error {
	elements := append(h.elements(things), shared(things)...)
	there, err := t.Conn.Look(elements)
	if err != nil {
		return t.explain(nil, err)
	}
	for i, e := range elements {
		switch f := there[i]; {
		case !f.There:
			return t.mismatch("%s is not in set %s", e.What, e.Set.Name)
		case f.Comment != e.Comment && !e.Shared:
			return t.mismatch("%s in set %s belongs to %s", e.What, e.Set.Name, f.Comment)
		}
	}
	return nil
}

// checkRules makes sure that the chains have their rules: `nft flush table`
// takes them and leaves the elements.
func (t *Table) checkRules() error {
	rules, err := t.Conn.Rules(t.Table, "")
	if err != nil {
		return t.explain(nil, err)
	}
	count := map[string]int{}
	seen := map[uint64]bool{} // a list may hold a rule twice
	for _, r := range rules {
		if !seen[r.Handle] {
			seen[r.Handle] = true
			count[r.Chain]++
		}
	}
	for _, c := range t.Chains {
		if count[c.Name] < len(c.Rules) {
			return t.mismatch("chain %s has %d of its %d rules", c.Name, count[c.Name], len(c.Rules))
		}
	}
	return nil
}
