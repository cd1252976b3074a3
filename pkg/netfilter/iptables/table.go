package iptables

import (
	"context"
	"fmt"
	"maps"
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
	restore string // the program

	// Its content, once it is read.
	chains map[string]bool // without the kernel's own
	rules  []rule
	ids    map[string]bool // of the rules; nil if it must be read
}

func (t *table) String() string {
	return fmt.Sprintf("table %s of %s (%s)", t.name, strings.TrimSuffix(filepath.Base(t.restore), "-restore"), t.family.name)
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
	if b.conn != nil && b.mayHave(f, name) {
		there, err := b.conn.HasChains(nftTable(f, name), chains...)
		if err != nil {
			return nil, err
		}
		if slices.Contains(there, true) {
			t, err := flavouredTable(ctx, f, name, nfTables)
			if err != nil {
				return nil, err
			}
			list = append(list, t)
		}
	}
	if b.hasLegacy(f, name) {
		t, err := flavouredTable(ctx, f, name, legacy)
		if err == nil {
			list = append(list, t)
		} else if certain || ctx.Err() != nil {
			return nil, err
		}
	}
	return list, nil
}

// mayHave reports whether nf_tables has a table, if many attachments are looked at in a row: most often it has none, and then nobody need ask for
// the chains of each.
func (b *Backend) mayHave(f *family, name string) bool {
	return b.listings == nil || b.listings.has("nf_tables "+f.name+" "+name, func() bool {
		there, err := b.conn.HasTables(nftTable(f, name))
		return err != nil || there[0]
	})
}

func (b *Backend) hasLegacy(f *family, name string) bool {
	look := func() bool { return hasLegacy(f, name) }
	if b.listings == nil {
		return look()
	}
	return b.listings.has("legacy "+f.name+" "+name, look)
}

// read has iptables-save list the table, unless that has been done.
func (t *table) read(ctx context.Context) error {
	if t.ids != nil {
		return nil
	}
	save := strings.TrimSuffix(t.restore, "restore") + "save"
	text, err := runProgram(ctx, save, "", "-t", t.name)
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
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, ok := strings.CutPrefix(word, ":"); ok && strings.HasPrefix(rest, "-") {
			t.chains[name] = true
		}
		if chain, spec, ok := strings.Cut(rest, " "); ok && word == "-A" {
			t.rules = append(t.rules, rule{family: t.family, chain: chain, spec: spec})
		}
	}
	t.ids = ids(t.rules)
}

// lacking returns the rules that a table does not have, each once.
func (b *Backend) lacking(ctx context.Context, t *table, rules []rule) ([]rule, error) {
	if err := b.listings.read(ctx, t); err != nil {
		return nil, err
	}
	return missing(filter(rules, func(r rule) bool { return !t.hasRule(r) }), nil), nil
}

func (t *table) hasRule(r rule) bool { return t.ids[r.id()] }

// change is what is to become of a table.
type change struct {
	chains []string // are made if they are missing
	shared []rule   // are made if they are missing; they are for all attachments

	// Containers' chains and the jumps to them are made anew as a whole, or go: the order in them matters, and ip6tables-legacy (as of
	// 1.8.9) takes rules for equal that differ in their ports only.
	containers map[string]bool
	wanted     []rule
	unwanted   []rule // in other chains
}

// changeTo returns the change that makes of what owners had before what they have after, when some leave. Of their containers' chains
// those that are not there are not made again for others.
func (t *table) changeTo(before, after []rule, leaving map[owner]bool) change {
	chains := chainsOf(leaving)
	isRemaining := func(r rule) bool {
		return r.family == t.family && (chains[r.chain] && t.chains[r.chain] || chains[r.target()] && t.chains[r.target()])
	}
	return change{containers: chains, wanted: filter(after, isRemaining), unwanted: missing(before, after)}
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
	return t.restoreLines(ctx, lines)
}

// restoreLines has iptables-restore make a change, all of it or nothing.
func (t *table) restoreLines(ctx context.Context, lines []string) error {
	t.ids = nil
	input := "*" + t.name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	_, err := runProgram(ctx, t.restore, input, "--noflush", "--wait", strconv.Itoa(lockSeconds))
	return err
}

// lines are the lines of iptables-restore that make a change.
func (t *table) lines(c change) (lines []string) {
	for _, chain := range c.chains {
		if !t.chains[chain] {
			lines = append(lines, "-N "+chain)
		}
	}
	for _, r := range missing(c.shared, t.rules) {
		lines = append(lines, r.add())
		if jump := isolationJump(r.family); r.target() == forwardChain && t.hasRule(jump) {
			lines = append(lines, jump.remove(), jump.add()) // has to stay before it
		}
	}
	unwanted, wanted, needed := ids(c.unwanted), missing(c.wanted, nil), map[string]bool{}
	for _, r := range wanted {
		needed[r.chain] = true
	}
	for _, r := range t.rules {
		if c.containers[r.target()] || unwanted[r.id()] && !c.containers[r.chain] {
			lines = append(lines, r.remove())
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(c.containers)) {
		if needed[chain] {
			lines = append(lines, ":"+chain+" - [0:0]")
		} else if t.chains[chain] {
			lines = append(lines, "-F "+chain, "-X "+chain)
		}
	}
	for _, r := range wanted {
		if c.containers[r.chain] || c.containers[r.target()] || !t.hasRule(r) {
			lines = append(lines, r.add())
		}
	}
	return lines
}
