package nft

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// list is a chain that attachments with equal lists share, and the sets that it looks into. Both are named by what is in them. They come with
// the first attachment, and go with the last one: an element of the set lists says that they are there, and whose they are.
type list struct {
	id    string // as long as a link's name can be
	rules []rule
	sets  []filled
	names []string // the entries with names
}

// filled is a set with its elements, which stay as they are.
type filled struct {
	*nftables.Set
	elements []nftables.SetElement
}

// listSets are the sets that a list can have, besides those of names.
func listSets() (names []string) {
	for _, name := range []string{"allow4", "allow6", "deny4", "deny6"} {
		names = append(names, name, "ports"+name)
	}
	return names
}

func listChain(id string) string     { return "list" + stored + "_" + id }
func listSet(name, id string) string { return name + stored + "_" + id }

// named names the list, and its sets in its rules.
func (l *list) named(t nftables.Table) *list {
	h := sha512.New()
	fmt.Fprint(h, version, len(l.rules))
	for _, entry := range l.names {
		fmt.Fprintln(h, entry)
	}
	for _, s := range l.sets {
		fmt.Fprint(h, s.Name)
		for _, e := range s.elements {
			h.Write(slices.Concat(e.Key, e.KeyEnd, []byte{byte(len(e.KeyEnd))}))
		}
	}
	l.id = hex.EncodeToString(h.Sum(nil)[:7])
	renamed := map[string]string{}
	for _, s := range l.sets {
		renamed[s.Name] = listSet(s.Name, l.id)
		s.Set.Table, s.Set.Name = &t, renamed[s.Name]
	}
	for _, r := range l.rules {
		r.rename(renamed)
	}
	return l
}

// addList adds a list to the transaction, in place of what is left of it.
func (t *table) addList(l *list) {
	c := &nftables.Chain{Table: &t.Table, Name: listChain(l.id)}
	t.conn.AddChain(c)
	t.conn.FlushChain(c)
	for _, s := range l.sets {
		_ = t.conn.AddSet(s.Set, nil) // fails for anonymous sets only
		if s.HasTimeout {             // what names lead to stays open
			is, _ := t.conn.GetSetElements(s.Set) // fails if it is not there
			for part := range slices.Chunk(unnamed(is), atOnce) {
				_ = t.conn.SetDeleteElements(s.Set, part)
			}
			continue
		}
		t.conn.FlushSet(s.Set)
		for part := range slices.Chunk(s.elements, atOnce) {
			_ = t.conn.SetAddElements(s.Set, part)
		}
	}
	for _, r := range l.rules {
		t.conn.AddRule(&nftables.Rule{Table: &t.Table, Chain: c, Exprs: r})
	}
}

// dropList adds the removal of a list to the transaction.
func (t *table) dropList(id string) error {
	t.conn.DelChain(&nftables.Chain{Table: &t.Table, Name: listChain(id)})
	there, err := t.hasListSets(id, listSets()...)
	for i, name := range listSets() {
		if err == nil && there[i] {
			t.conn.DelSet(&nftables.Set{Table: &t.Table, Name: listSet(name, id)})
		}
	}
	for i := 0; err == nil; i++ {
		if there, err = t.hasListSets(id, nameSet(i, &ipv4)); err != nil || !there[0] {
			break
		}
		for _, f := range families() {
			t.conn.DelSet(&nftables.Set{Table: &t.Table, Name: listSet(nameSet(i, f), id)})
		}
	}
	return err
}

func (t *table) hasListSets(id string, names ...string) ([]bool, error) {
	var questions []netlink.Message
	for _, name := range names {
		questions = append(questions, question(unix.NFT_MSG_GETSET, t.Table, textAttr(unix.NFTA_SET_NAME, listSet(name, id))))
	}
	return t.conn.exist(questions...)
}

// brokenLists returns the lists of records that lack rules or, if all is looked at, have not exactly what belongs into them.
func (t *table) brokenLists(records []record, all bool) (broken []*list, err error) {
	seen := map[string]bool{}
	for _, r := range records {
		if !r.kind.isList() || seen[r.list.id] {
			continue
		}
		seen[r.list.id] = true
		answers, err := t.conn.ask(chainQuestion(t.Table, listChain(r.list.id)))
		if err != nil {
			return nil, t.asMissing(err)
		}
		if usesOf(answers[0]) < len(r.list.rules) || all && !(t.hasExactly(listChain(r.list.id), r.list.rules) && t.hasSets(r.list)) {
			broken = append(broken, r.list)
		}
	}
	return broken, nil
}

// mendLists adds the lists of records that lack something to the transaction.
func (t *table) mendLists(records []record, all bool) error {
	broken, err := t.brokenLists(records, all)
	for _, l := range broken {
		t.addList(l)
	}
	return err
}

// hasSets reports whether all that belongs into a list's sets is there, and nothing else.
func (t *table) hasSets(l *list) bool {
	for _, s := range l.sets {
		is, err := t.conn.GetSetElements(s.Set)
		switch {
		case err != nil:
			return false
		case s.HasTimeout: // what names lead to comes and goes
			if len(unnamed(is)) > 0 {
				return false
			}
		case sortedKeys(is) != sortedKeys(s.elements):
			return false
		}
	}
	return true
}

// unnamed returns those of the addresses to which names lead that our resolver has not opened: it says the name, and for how long.
func unnamed(elements []nftables.SetElement) (list []nftables.SetElement) {
	for _, e := range elements {
		if e.Timeout == 0 || e.Comment == "" {
			list = append(list, e)
		}
	}
	return list
}

// sortedKeys leaves out the end at zero that nft adds to sets of intervals which it loads.
func sortedKeys(elements []nftables.SetElement) string {
	var keys []string
	for _, e := range elements {
		if e.IntervalEnd && bytes.Count(e.Key, []byte{0}) == len(e.Key) {
			continue
		}
		keys = append(keys, fmt.Sprintf("%x-%x %v", e.Key, e.KeyEnd, e.IntervalEnd))
	}
	slices.Sort(keys)
	return fmt.Sprint(keys)
}

// unusedLists lists the chains of lists that no record of anybody has.
func (t *table) unusedLists() (ids []string, err error) {
	all, err := t.allRecords()
	if err != nil || all == nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, records := range all {
		for _, r := range records {
			if r.kind.isList() {
				used[r.link] = true
			}
		}
	}
	chains, err := t.conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return nil, kernelError("list the chains of table "+t.String(), err)
	}
	for _, c := range chains {
		if id, is := bytes.CutPrefix([]byte(c.Name), []byte(listChain(""))); is && c.Table.Name == t.Name && !used[string(id)] {
			ids = append(ids, string(id))
		}
	}
	return ids, nil
}
