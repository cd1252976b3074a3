package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// version ends the names of all that is in our tables, so that a later one can be made beside it.
const version = "_v1"

// layout is what one of our tables has in it.
type layout interface {
	// chains returns the chains that records need, with their rules.
	chains(records []record) []chain
	// elements returns what the owner of a record has in sets.
	elements(r record) []element
	// missing is the error of a kernel that can't make the table.
	missing() *plugin.MissingFeature
}

// table is one of our tables in one network namespace.
type table struct {
	nftables.Table
	layout
	conn   *Conn
	owners *nftables.Set   // the records of attachments
	sets   []*nftables.Set // all but those of subnets
	typed  []typed         // those of them that the library can't make
}

// chain is a chain with its rules. One without a kind is entered from others.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    []rule
	jumps    int // to it, from other chains

	own bool          // attachments have rules of their own in it
	set *nftables.Set // of a subnet: its addresses
}

func (c *Conn) table(which nftables.Table) *table {
	t := &table{conn: c, Table: which}
	// The key is the owner's ID and a number that counts from 0.
	t.owners = t.newMap("owners", []value{{kind: nftables.TypeIP6Addr}, {kind: nftables.TypeMark}},
		nftables.TypeMark, nftables.TypeMark, nftables.TypeIFName, nftables.TypeIP6Addr, nftables.TypeInetService)
	switch which {
	case hostTable:
		t.layout = newHostLayout(t)
	case forwardTable:
		t.layout = newForwardLayout(t)
	case judgeTable:
		t.layout = newJudgeLayout(t)
	case guardTable:
		t.layout = newGuardLayout(t)
	default:
		t.layout = newBridgeLayout(t)
	}
	return t
}

// newSet adds a set of values to the table.
func (t *table) newSet(name string, key ...value) *nftables.Set {
	var types []nftables.SetDatatype
	for _, v := range key {
		types = append(types, v.kind)
	}
	s := &nftables.Set{Table: &t.Table, Name: name + version, KeyType: nftables.MustConcatSetType(types...), HasTimeout: true}
	if s.KeyType == nftables.TypeIFName {
		s.KeyByteOrder = binaryutil.NativeEndian // in which nft prints it
	}
	t.sets = append(t.sets, s)
	return s
}

func (t *table) newMap(name string, key []value, data ...nftables.SetDatatype) *nftables.Set {
	s := t.newSet(name, key...)
	s.IsMap, s.DataType = true, nftables.MustConcatSetType(data...)
	return s
}

// String returns the table as nft's commands take it: "inet cnibox".
func (t *table) String() string {
	return map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet ", nftables.TableFamilyBridge: "bridge "}[t.Family] + t.Name
}

// incomplete returns the names of chains that lack a rule or a jump to them, of all that have our rules, and those of subnets
// that records need; lost is whether they all do. Only numbers are looked at. Where nobody else may have rules, chains are wrong that have others, too:
// they are looked for if asked for, and where a number is too large.
func (t *table) incomplete(records []record, exactly bool) (wrong []string, lost bool, err error) {
	chains := slices.DeleteFunc(t.chains(records), func(c chain) bool { return len(c.rules) == 0 })
	questions := []netlink.Message{question(unix.NFT_MSG_GETTABLE, t.Table)}
	for _, c := range chains {
		questions = append(questions, chainQuestion(t.Table, c.name))
	}
	answers, err := t.conn.ask(questions...)
	if err != nil {
		return nil, false, t.asMissing(err)
	}
	if isDormant(answers[0]) { // no rule of it counts
		answers = make([]map[uint16][]byte, len(answers))
	}
	for i, c := range chains {
		uses, wants := usesOf(answers[1+i]), len(c.rules)+c.jumps
		if uses < wants || t.isExact() && (exactly || uses > wants) && !t.hasExactly(c.name, c.rules) {
			wrong = append(wrong, c.name)
		}
	}
	return wrong, len(wrong) == len(chains), nil
}

// usesOf returns what the kernel counts of a chain: its rules, and all that leads to it.
func usesOf(chain map[uint16][]byte) int {
	uses := chain[unix.NFTA_CHAIN_USE]
	if len(uses) != 4 {
		return 0
	}
	return int(binary.BigEndian.Uint32(uses))
}

func isDormant(table map[uint16][]byte) bool {
	flags := table[unix.NFTA_TABLE_FLAGS]
	return len(flags) == 4 && binary.BigEndian.Uint32(flags)&unix.NFT_TABLE_F_DORMANT != 0
}

// complete makes what of the table is missing for records, or not as it should be: all of it is made, or made again, in one transaction.
func (t *table) complete(records []record, exactly bool) error {
	wrong, _, err := t.incomplete(records, exactly)
	if err != nil || len(wrong) == 0 {
		return err
	}
	all, err := t.allRecords()
	if err != nil {
		return err
	}
	for _, others := range all {
		records = append(records, others...)
	}
	if err := t.addTyped(); err != nil {
		return err
	}
	t.conn.AddTable(&t.Table)
	t.build(records)
	return t.asMissing(t.conn.Commit("make table " + t.String()))
}

// build adds the table's sets, chains and rules, and the subnets that records need, to the transaction. Attachments' rules in chains
// stay as they are.
func (t *table) build(records []record) {
	for _, s := range t.sets {
		if !slices.ContainsFunc(t.typed, func(other typed) bool { return other.Set == s }) {
			_ = t.conn.AddSet(s, nil) // fails for anonymous sets only
		}
	}
	chains := t.chains(records)
	for _, c := range chains {
		added := &nftables.Chain{Table: &t.Table, Name: c.name, Type: c.kind}
		if c.kind != "" {
			added.Hooknum, added.Priority = c.hook, &c.priority
		}
		t.conn.AddChain(added)
		if !c.own {
			t.conn.FlushChain(added)
		}
	}
	add := func(chain string, r rule) {
		t.conn.AddRule(&nftables.Rule{Table: &t.Table, Chain: &nftables.Chain{Name: chain}, Exprs: r})
	}
	for _, c := range chains {
		if c.set != nil {
			_ = t.conn.AddSet(c.set, nil)
			add(chainSubnets, jump(c.name))
		}
		for _, r := range c.rules {
			add(c.name, r)
		}
	}
}

// asMissing makes an error out of one of the kernel's that is about what the kernel lacks, such as a kind of chain or expression.
func (t *table) asMissing(err error) error {
	if !isLacking(err) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	m := t.missing()
	m.Err = err
	return m
}

// mismatch is the error of a CHECK.
func (t *table) mismatch(format string, args ...any) error {
	return plugin.Errorf(fmt.Sprintf("something changed it after ADD, such as a reload of nftables.service or another `nft flush ruleset`: "+
		"%s; see `nft list table %s`", plugin.RepairRemedy, t), "table %s%s", t, fmt.Sprintf(format, args...))
}
