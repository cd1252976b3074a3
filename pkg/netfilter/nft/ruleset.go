package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// version ends the names of all that is in our tables, so that a later one can be
// made beside it.
const version = "_v1"

// ruleset describes a table: what is in it for all attachments, and how an
// attachment's elements are told from its records.
type ruleset struct {
	table  nftables.Table
	owners *nftables.Set   // the records of attachments
	sets   []*nftables.Set // all but owners, and those that are made on demand
	chains func() []chain  // with their rules: DEL needs none

	// elements returns what the owner of a record has put into sets. The first
	// of them is that with data, if there is one.
	elements func(record) []element

	// onDemand tells by the name of a set whether it is one that is made by the
	// first who puts something in it, and which chain comes with it. It is nil if
	// there are none.
	onDemand func(set string) (part, bool)

	refusal string // what can't be done without the table, for errors
	need    string // of the kernel
	lost    string // what is lost with the table
}

// chain is a chain with its rules. One without a kind is entered from others.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    []rule
	jumps    int // to it, from other chains

	own     bool // attachments have rules of their own in it
	toParts bool // it has the jumps to parts
}

// part is a set with the one chain that looks it up. The chain is jumped to from
// another one.
type part struct {
	set   *nftables.Set
	chain chain
	from  string
}

// newOwners returns a map of owners. Its key is the owner's ID and a number that
// counts from 0.
func newOwners(t *nftables.Table) *nftables.Set {
	return newMap(t, "owners", concat(nftables.TypeIP6Addr, nftables.TypeMark),
		concat(nftables.TypeMark, nftables.TypeMark, nftables.TypeIFName, nftables.TypeIP6Addr, nftables.TypeInetService))
}

func newSet(t *nftables.Table, name string, key nftables.SetDatatype) *nftables.Set {
	s := &nftables.Set{Table: t, Name: name + version, KeyType: key, HasTimeout: true}
	if key == nftables.TypeIFName {
		s.KeyByteOrder = binaryutil.NativeEndian // in which nft prints it
	}
	return s
}

func newMap(t *nftables.Table, name string, key, data nftables.SetDatatype) *nftables.Set {
	s := newSet(t, name, key)
	s.IsMap, s.DataType = true, data
	return s
}

func concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	return nftables.MustConcatSetType(types...)
}

// table is a ruleset in one network namespace.
type table struct {
	ruleset
	conn    *Conn
	results string // netfilter.PortMaps.Results
}

func (t *table) String() string { return nameOf(t.table) }

// nameOf returns a table as nft's commands take it: "inet cnibox".
func nameOf(t nftables.Table) string {
	names := map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyBridge: "bridge"}
	return names[t.Family] + " " + t.Name
}

// incomplete returns the names of chains that lack a rule or a jump to them, or are
// not there, of all whose rules can be counted; lost is whether they all lack
// everything. Only numbers are looked at: what an administrator adds is no harm.
func (t *table) incomplete(parts []part) (missing []string, lost bool, err error) {
	var names []string
	var want []int
	for _, c := range t.chains() {
		if !c.own && !c.toParts {
			names, want = append(names, c.name), append(want, len(c.rules)+c.jumps)
		}
	}
	for _, p := range parts {
		names, want = append(names, p.chain.name), append(want, len(p.chain.rules)+1)
	}
	uses, err := t.conn.uses(t.table, names)
	if err != nil {
		return nil, false, t.explain(err)
	}
	for i, n := range uses {
		if n < want[i] {
			missing = append(missing, names[i])
		}
	}
	return missing, slices.Max(uses) == 0, nil
}

// complete makes what of the table is missing, and parts that are needed: all of
// it is made, or made again, in one transaction.
func (t *table) complete(parts []part) error {
	missing, _, err := t.incomplete(parts)
	if err != nil || len(missing) == 0 {
		return err
	}
	existing, err := t.parts()
	if err != nil {
		return err
	}
	t.conn.AddTable(&t.table)
	t.build(append(existing, parts...))
	return t.commitBuild("make table " + t.String())
}

// parts lists those whose sets are there.
func (t *table) parts() ([]part, error) {
	if t.onDemand == nil {
		return nil, nil
	}
	there, err := t.conn.HasTables(t.table)
	if err != nil || !there[0] {
		return nil, err
	}
	sets, err := t.conn.GetSets(&t.table)
	if err != nil {
		return nil, explain("list the sets of table "+t.String(), err)
	}
	var parts []part
	for _, s := range sets {
		if p, ok := t.onDemand(s.Name); ok {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// build adds the table's sets, chains and rules to the transaction. What attachments
// have in chains stays as it is.
func (t *table) build(parts []part) {
	sets, chains := append([]*nftables.Set{t.owners}, t.sets...), t.chains()
	jumps := map[string]string{} // to parts, from other chains
	for _, p := range parts {
		if jumps[p.chain.name] == "" {
			jumps[p.chain.name] = p.from
			sets, chains = append(sets, p.set), append(chains, p.chain)
		}
	}
	for _, s := range sets {
		_ = t.conn.AddSet(s, nil) // fails for anonymous sets only
	}
	for _, c := range chains {
		added := &nftables.Chain{Table: &t.table, Name: c.name, Type: c.kind}
		if c.kind != "" {
			added.Hooknum, added.Priority = c.hook, &c.priority
		}
		t.conn.AddChain(added)
		if !c.own {
			t.conn.FlushChain(added)
		}
	}
	add := func(chain string, r rule) {
		t.conn.AddRule(&nftables.Rule{Table: &t.table, Chain: &nftables.Chain{Name: chain}, Exprs: r})
	}
	for _, c := range chains {
		for _, r := range c.rules {
			add(c.name, r)
		}
		if from := jumps[c.name]; from != "" {
			add(from, jump(c.name))
		}
	}
}

func (t *table) commitBuild(what string) error {
	err := t.conn.commit(what)
	if lacking(err) || errors.Is(err, unix.ENOENT) { // a kind of chain or expression that there is not
		return unavailable(t.refusal, t.need, err)
	}
	return err
}

// available tries whether the kernel takes the table, without leaving anything in
// it: the table is made and removed in one transaction.
func (t *table) available() error {
	there, err := t.conn.HasTables(t.table)
	if err != nil || there[0] {
		return err
	}
	if _, _, err := t.incomplete(nil); err != nil { // there is no nf_tables at all
		return err
	}
	t.conn.CreateTable(&t.table) // not one that was made just now
	t.build(nil)
	t.conn.DelTable(&t.table)
	err = t.commitBuild("try to make table " + t.String())
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// explain makes an error out of one of the kernel's that may be about what the
// kernel lacks.
func (t *table) explain(err error) error {
	if lacking(err) {
		return unavailable(t.refusal, t.need, err)
	}
	return err
}

// mismatch is the error of a CHECK.
func (t *table) mismatch(format string, args ...any) error {
	return plugin.Errorf(fmt.Sprintf("something changed it after ADD: restart the container; see `nft list table %s`", t), "table %s: %s", t, fmt.Sprintf(format, args...))
}
