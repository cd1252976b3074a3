package iptables

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// table is a table of one family, in the flavour of a program.
type table struct {
	family  *family
	name    string
	program string // its iptables-restore

	// What is in it, once it is read.
	chains map[string]bool // without the kernel's own
	rules  []rule
	ids    map[string]bool // of the rules; nil if it is to be read
}

func (t *table) String() string {
	return fmt.Sprintf("table %s of %s (%s)", t.name, strings.TrimSuffix(filepath.Base(t.program), "-restore"), t.family.name)
}

func nftTable(f *family, name string) nftables.Table {
	return nftables.Table{Family: f.nft, Name: name}
}

// hasLegacy reports whether iptables-legacy has a table. To ask iptables-legacy would make it.
func hasLegacy(f *family, name string) bool {
	names, _ := os.ReadFile(f.legacy) // there is none without iptables-legacy
	return slices.Contains(strings.Fields(string(names)), name)
}

// tables returns the tables of a name in which there may be something: in nf_tables if one of the chains is there, and all
// of iptables-legacy. One without a program is an error if it is certain that it has what is looked for.
func (b *Backend) tables(ctx context.Context, f *family, name string, certain bool, chains []string) (list []*table, err error) {
	var flavours []string
	if b.conn != nil {
		there, err := b.conn.HasChains(nftTable(f, name), chains...)
		if err != nil {
			return nil, err
		}
		if slices.Contains(there, true) {
			flavours = append(flavours, nfTables)
		}
	}
	if hasLegacy(f, name) {
		flavours = append(flavours, legacy)
	}
	for _, flavour := range flavours {
		t, err := flavouredTable(ctx, f, name, flavour)
		switch {
		case err == nil:
			list = append(list, t)
		case certain || flavour == nfTables || ctx.Err() != nil:
			return nil, err
		}
	}
	return list, nil
}

// nftChains lists the chains of a table of nf_tables.
func (b *Backend) nftChains(f *family, name string) (names []string, err error) {
	if b.conn == nil {
		return nil, nil
	}
	if there, err := b.conn.HasTables(nftTable(f, name)); err != nil || !there[0] {
		return nil, err
	}
	chains, err := b.conn.ListChainsOfTableFamily(f.nft)
	for _, c := range chains {
		if c.Table.Name == name {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// read has iptables-save list the table, unless that has been done.
func (t *table) read(ctx context.Context) error {
	if t.ids != nil {
		return nil
	}
	save := strings.TrimSuffix(t.program, "restore") + "save"
	text, err := run(ctx, save, "", "-t", t.name)
	if err != nil {
		return err
	}
	if strings.Contains(text, "is incompatible, use 'nft' tool") {
		family := map[*family]string{&ipv4: "ip", &ipv6: "ip6"}[t.family]
		return plugin.Errorf(fmt.Sprintf("remove those rules: see `nft list table %s %s`", family, t.name),
			"%s can't list table %s: it has rules of nft that iptables does not understand", filepath.Base(save), t.name)
	}
	t.parse(text)
	return nil
}

// parse reads the output of iptables-save for one table, whose lines are
//
//	*nat
//	:CNI-HOSTPORT-DNAT - [0:0]
//	-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
//	COMMIT
func (t *table) parse(text string) {
	t.chains, t.rules = map[string]bool{}, nil
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, ok := strings.CutPrefix(kind, ":"); ok && strings.HasPrefix(rest, "-") {
			t.chains[name] = true
		}
		if chain, spec, ok := strings.Cut(rest, " "); ok && kind == "-A" {
			t.rules = append(t.rules, rule{family: t.family, chain: chain, spec: spec})
		}
	}
	t.ids = ids(t.rules)
}

// lacking returns the rules that the table does not have.
func (t *table) lacking(ctx context.Context, rules ...rule) ([]rule, error) {
	if err := t.read(ctx); err != nil {
		return nil, err
	}
	return without(rules, t.rules), nil
}

func (t *table) has(r rule) bool { return t.ids[r.id()] }

// jumpsTo returns the rules that jump to a chain.
func (t *table) jumpsTo(chain string) []rule {
	return filter(t.rules, func(r rule) bool { return strings.Contains(r.spec, chain) && r.target() == chain })
}

// in returns the rules of some chains.
func (t *table) in(chains ...string) []rule {
	are := setOf(chains)
	return filter(t.rules, func(r rule) bool { return are[r.chain] })
}

// change is what is to become of a table.
type change struct {
	chains []string // are made if they are missing
	shared []rule   // others need them too, and they stay
	own    []string // containers' chains: they and the jumps to them become what is wanted, or go
	wanted []rule
	gone   []rule // in other chains
}

// edit makes a change, by one run of iptables-restore if something differs.
func (t *table) edit(ctx context.Context, c change) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	lines := t.lines(c)
	if len(lines) == 0 {
		return nil
	}
	t.ids = nil
	input := "*" + t.name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	_, err := run(ctx, t.program, input, "--noflush", "--wait", strconv.Itoa(lockSeconds))
	return err
}

// lines are the lines of iptables-restore that make a change.
func (t *table) lines(c change) (lines []string) {
	for _, chain := range c.chains {
		if !t.chains[chain] {
			lines = append(lines, "-N "+chain)
		}
	}
	for _, r := range c.shared {
		if t.has(r) {
			continue
		}
		lines = append(lines, r.add())
		if jump := isolationJump(r.family); r.target() == forwardChain && t.has(jump) {
			lines = append(lines, jump.remove(), jump.add()) // has to stay before it
		}
	}
	slices.Sort(c.own)
	c.own, c.wanted = slices.Compact(c.own), without(c.wanted, nil)
	own := setOf(c.own)
	wanted, there := about(own, c.wanted), about(own, t.rules)
	for _, chain := range c.own {
		lines = append(lines, t.container(chain, wanted[chain], there[chain])...)
	}
	isOther := func(r rule) bool { return !r.isAbout(own) }
	gone := ids(filter(c.gone, isOther))
	for _, r := range t.rules {
		if gone[r.id()] {
			lines = append(lines, r.remove())
		}
	}
	for _, r := range without(filter(c.wanted, isOther), t.rules) {
		lines = append(lines, r.add())
	}
	return lines
}

// about returns for each chain the rules that are about it.
func about(chains map[string]bool, rules []rule) map[string][]rule {
	list := map[string][]rule{}
	for _, r := range rules {
		for _, chain := range []string{r.chain, r.target()} {
			if chains[chain] {
				list[chain] = append(list[chain], r)
			}
		}
	}
	return list
}

// container makes a chain, and the jumps to it, what they are to be. They are made anew as a whole if something differs: in
// the chain the order matters, and ip6tables-legacy (as of 1.8.9) takes rules for equal that differ in their ports only.
func (t *table) container(chain string, wanted, there []rule) (lines []string) {
	content, jumps := split(chain, wanted)
	before, jumpsBefore := split(chain, there)
	if t.chains[chain] == (len(content) > 0) && slices.EqualFunc(before, content, sameRule) && slices.EqualFunc(jumpsBefore, jumps, sameRule) {
		return nil
	}
	for _, r := range jumpsBefore {
		lines = append(lines, r.remove())
	}
	if len(content) == 0 {
		return append(lines, "-F "+chain, "-X "+chain)
	}
	lines = append(lines, ":"+chain+" - [0:0]")
	for _, r := range append(content, jumps...) {
		lines = append(lines, r.String())
	}
	return lines
}

// split tells the rules of a chain from those that jump to it.
func split(chain string, rules []rule) (content, jumps []rule) {
	for _, r := range rules {
		switch {
		case r.chain != chain:
			jumps = append(jumps, r)
		case r.first:
			content = slices.Insert(content, 0, r)
		default:
			content = append(content, r)
		}
	}
	return content, jumps
}
