package nft

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// part is a part of the ruleset that only some attachments need. The first of
// them makes it, and GC removes it when its sets are empty. All of its names are
// what it is for, the version, "_" and the part's id.
type part struct {
	id      string
	sets    []nftables.Set   // at least one
	chains  []nftables.Chain // those that are jumped to first
	entries []entry
}

// entry is a rule in a chain of the ruleset by which packets come to a part: it
// looks something up in one of its sets, or jumps to one of its chains.
type entry struct {
	chain string
	first bool // before the other rules of the chain
	rule  nftables.Rule
}

// Names of what parts consist of.
const (
	partMasq       = "masq"       // set: masqueraded addresses of a subnet
	partIf         = "if"         // set: ports to which the part's conditions apply
	partGone       = "gone"       // set: addresses or ports that are not the part's any more
	partSNAT       = "snat"       // set: as snat4_v2
	partMasqAll    = "masqall"    // set: as masqall4_v2
	partMark       = "mark"       // chain: sets the mark
	partDNAT       = "dnat"       // chain, and with numbers from 1 on more of them: conditions, mark and DNAT
	partMasquerade = "masquerade" // chain: masquerades what has the mark
)

func partName(what, id string) string { return what + version + "_" + id }

// partOf takes the id of its part out of the name of a set or chain.
func partOf(name string) (id string, ok bool) {
	what, id, ok := strings.Cut(name, version+"_")
	if !ok {
		return "", false
	}
	switch strings.TrimRight(what, "0123456789") {
	case partMasq, partIf, partGone, partSNAT, partMasqAll, partMark, partDNAT, partMasquerade:
		return id, true
	}
	return "", false
}

// appendTo adds the creation of the part to a transaction.
func (p *part) appendTo(tx *nftables.Transaction) {
	for i := range p.sets {
		tx.CreateSet(makePart, &p.sets[i])
	}
	for _, c := range p.chains {
		tx.CreateChain(makePart, table, c)
	}
	for _, e := range p.entries {
		if e.first {
			tx.InsertRule(makePart, table, e.chain, e.rule)
		} else {
			tx.AppendRule(makePart, table, e.chain, e.rule)
		}
	}
}

// partsOf returns the parts that the elements of claims go to, each once.
func partsOf(claims []claim) []part {
	var parts []part
	done := map[string]bool{}
	add := func(id string, make func() part) {
		if !done[id] {
			done[id] = true
			parts = append(parts, make())
		}
	}
	for i := range claims {
		c := &claims[i]
		if c.record.kind&kindAddress != 0 {
			s := subnetOf(c.record.prefix())
			add(s.id, s.part)
			continue
		}
		if g := c.record.group(); !g.isPlain() {
			add(g.id(), func() part { return g.part(c.conditions) })
		}
	}
	return parts
}

// missing returns those of the parts that are not there. All of a part comes
// and goes in one transaction, so that one of its sets stands for it.
func (t *Table) missing(parts []part) ([]part, error) {
	var out []part
	for i := range parts {
		found, err := t.conn.HasSet(&parts[i].sets[0])
		if err != nil {
			return nil, err
		}
		if !found {
			out = append(out, parts[i])
		}
	}
	return out, nil
}

// collectParts removes parts whose sets are empty: all, or those with the ids
// given. If anything changes meanwhile they are left for another time: one may
// have been given an element.
func (t *Table) collectParts(ids ...string) error {
	generation, err := t.generation()
	if err != nil {
		return err
	}
	names, err := t.conn.Sets(table, "")
	if err != nil {
		return err
	}
	empty := map[string]bool{}
	var sets []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		id, ok := partOf(name)
		if !ok || len(ids) > 0 && !slices.Contains(ids, id) {
			continue
		}
		n := 0
		if err := t.conn.List(&nftables.Set{Table: table, Name: name}, func([]byte, nftables.Found) { n++ }); err != nil {
			return err
		}
		if before, seen := empty[id]; !seen || before {
			empty[id] = n == 0
		}
		sets = append(sets, name)
	}
	isEmpty := func(name string) bool {
		id, ok := partOf(name)
		return ok && empty[id]
	}
	sets = slices.DeleteFunc(sets, func(name string) bool { return !isEmpty(name) })
	if len(sets) == 0 {
		return nil
	}
	tx := &nftables.Transaction{}
	if err := t.appendRemoval(tx, sets, isEmpty); err != nil {
		return err
	}
	return unlessChanged(t.conn.CommitIf(tx, generation))
}

// appendRemoval adds the removal of sets, and of chains that are chosen, to a
// transaction, with all rules that look anything up in the one or jump to the
// other.
func (t *Table) appendRemoval(tx *nftables.Transaction, sets []string, chosen func(name string) bool) error {
	rules, err := t.conn.Rules(table, "")
	if err != nil {
		return err
	}
	chains, err := t.conn.Chains(table, "")
	if err != nil {
		return err
	}
	chains = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(chains))), func(name string) bool { return !chosen(name) })
	done := map[uint64]bool{} // a list may hold a rule twice
	for _, r := range rules {
		if !done[r.Handle] && !slices.Contains(chains, r.Chain) && (slices.Contains(sets, r.Set) || slices.Contains(chains, r.Jump)) {
			done[r.Handle] = true
			tx.RemoveRule(removeElements, table, r)
		}
	}
	for _, c := range chains {
		tx.FlushChain(removeElements, table, c)
	}
	for _, c := range chains {
		tx.RemoveChain(removeElements, table, c)
	}
	for _, s := range sets {
		tx.RemoveSet(removeElements, table, s)
	}
	return nil
}
