package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// version ends the names of chains with the same rules for all, and is a part of lists' names. It is counted up with any change of a rule: so the rules of
// one version come beside those of another, over the same sets, and then in their place.
const version = "_v1"

// stored ends the names of what attachments have: sets, maps, lists, and chains in which they have rules of their own. It stays, as each version has to
// find what another one has put there. A set with another key has another name.
const stored = "_v1"

// isLater is whether there are earlier versions. In the first one the linker leaves out what is about them.
const isLater = version != "_v1"

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
	conn    *Conn
	owners  *nftables.Set   // the records of attachments
	sets    []*nftables.Set // all but those of subnets
	dormant bool            // when it was looked at
	unsure  bool            // a change has failed by what is missing, such as a set that no rule looks into
	typed   []typed         // those of them that the library can't make
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
	s := &nftables.Set{Table: &t.Table, Name: name + stored, KeyType: nftables.MustConcatSetType(types...), HasTimeout: true}
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
// that records need, and of chains that are left of earlier versions; lost is whether the former all do. Only numbers are looked at. Where nobody else may
// have rules, chains are wrong that have others, too: they are looked for if asked for, and where a number is too large.
func (t *table) incomplete(records []record, exactly bool) (wrong []string, lost bool, err error) {
	chains := slices.DeleteFunc(t.chains(records), func(c chain) bool { return len(c.rules) == 0 })
	questions := []netlink.Message{question(unix.NFT_MSG_GETTABLE, t.Table)}
	var earlier []string
	for _, c := range chains {
		questions = append(questions, chainQuestion(t.Table, c.name))
	}
	if isLater {
		earlier = earlierNames(chains)
		for _, name := range earlier {
			questions = append(questions, chainQuestion(t.Table, name))
		}
	}
	answers, err := t.conn.ask(questions...)
	if err != nil {
		return nil, false, t.asMissing(err)
	}
	if t.dormant = isDormant(answers[0]); t.dormant { // no rule of it counts
		answers = make([]map[uint16][]byte, len(answers))
	}
	for i, c := range chains {
		uses, wants := usesOf(answers[1+i]), len(c.rules)+c.jumps
		if uses < wants || t.isExact() && (exactly || uses > wants) && !t.hasExactly(c.name, c.rules) {
			wrong = append(wrong, c.name)
		}
	}
	lost = len(wrong) == len(chains)
	if isLater {
		for i, name := range earlier {
			if answers[1+len(chains)+i] != nil {
				wrong = append(wrong, name)
			}
		}
	}
	return wrong, lost, nil
}

// earlierNames returns what chains with the same rules for all were called in earlier versions.
func earlierNames(chains []chain) (names []string) {
	for _, c := range chains {
		name, is := strings.CutSuffix(c.name, version)
		for v := 1; is && v < versionOf(c.name); v++ {
			names = append(names, fmt.Sprint(name, "_v", v))
		}
	}
	return names
}

// versionOf returns the version of a chain with the same rules for all, 0 if it is none.
func versionOf(chain string) int {
	name, number, _ := strings.Cut(chain, "_v")
	v, err := strconv.ParseUint(number, 10, 31)
	if err != nil || strings.HasSuffix(name, "options") { // in which attachments have rules of their own
		return 0
	}
	return int(v)
}

// hasOther reports whether chains of other versions have rules that count.
func (t *table) hasOther() bool {
	others, _ := t.chainsOfOthers()
	for _, c := range others {
		if rules, _ := t.conn.GetRules(&t.Table, c); len(rules) > 0 {
			return !t.dormant
		}
	}
	return false
}

// chainsOfOthers lists the chains of other versions.
func (t *table) chainsOfOthers() (list []*nftables.Chain, err error) {
	all, err := t.conn.ListChainsOfTableFamily(t.Family)
	for _, c := range all {
		if v := versionOf(c.Name); c.Table.Name == t.Name && v != 0 && v != versionOf(version) {
			list = append(list, c)
		}
	}
	return list, err
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

// ErrOther is the error of a CHECK where another version has attached the container, or has rules, alone or beside this one. Whether all of them are
// there is not looked at.
var ErrOther = errors.New("rules of another version of cnibox")

// OtherRemedy is what to do about it.
const OtherRemedy = "`cnictl repair` exchanges them: nothing is open meanwhile, and nothing is cut"

// complete makes what of the table is missing for records, or not as it should be: all of it is made, or made again, in one transaction.
func (t *table) complete(records []record, exactly bool) error {
	wrong, _, err := t.incomplete(records, exactly)
	if err != nil || len(wrong) == 0 && !t.unsure {
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
	err = t.asMissing(t.conn.Commit("make table " + t.String()))
	if isLater && err == nil {
		err = t.dropEarlier()
	}
	return err
}

// dropEarlier removes the chains of earlier versions, when those of this one are there: a packet is never between the two. Those of a later version stay,
// as that may close more.
func (t *table) dropEarlier() error {
	others, err := t.chainsOfOthers()
	earlier := slices.DeleteFunc(others, func(c *nftables.Chain) bool { return versionOf(c.Name) > versionOf(version) })
	if err != nil || len(earlier) == 0 {
		return kernelError("list the chains of table "+t.String(), err)
	}
	for _, c := range earlier {
		t.conn.FlushChain(c)
	}
	if err := t.commit(); err != nil {
		return err
	}
	for _, c := range earlier {
		t.conn.DelChain(c)
		if err := t.commit(); err != nil && !errors.Is(err, unix.EBUSY) { // a rule of somebody's leads there: it stays, and does nothing
			return err
		}
	}
	return nil
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
