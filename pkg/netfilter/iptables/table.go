package iptables

import (
	"context"
	"errors"
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
	program string   // its iptables-restore
	read    *listing // nil until it is needed
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

// listing is what iptables-save tells of a table.
type listing struct {
	family *family
	chains map[string]bool // without the kernel's own
	rules  []rule
	ids    map[string]bool // of the rules
}

// parseListing reads the output of iptables-save for one table, whose lines are
//
//	*nat
//	:CNI-HOSTPORT-DNAT - [0:0]
//	-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
//	COMMIT
func parseListing(f *family, text string) *listing {
	l := &listing{family: f, chains: map[string]bool{}}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, ok := strings.CutPrefix(kind, ":"); ok && strings.HasPrefix(rest, "-") {
			l.chains[name] = true
		}
		if chain, spec, ok := strings.Cut(rest, " "); ok && kind == "-A" {
			l.rules = append(l.rules, rule{family: f, chain: chain, spec: spec})
		}
	}
	l.ids = ids(l.rules)
	return l
}

func (l *listing) has(r rule) bool { return l.ids[r.id()] }

// jumpsTo returns the rules that jump to a chain.
func (l *listing) jumpsTo(chain string) []rule {
	return filter(l.rules, func(r rule) bool { return strings.Contains(r.spec, chain) && r.target() == chain })
}

// in returns the rules of some chains.
func (l *listing) in(chains ...string) []rule {
	return filter(l.rules, func(r rule) bool { return slices.Contains(chains, r.chain) })
}

// list reads the table, unless that has been done.
func (t *table) list(ctx context.Context) (*listing, error) {
	if t.read != nil {
		return t.read, nil
	}
	save := strings.TrimSuffix(t.program, "restore") + "save"
	text, err := run(ctx, save, "", "-t", t.name)
	if err != nil {
		return nil, err
	}
	if strings.Contains(text, "is incompatible, use 'nft' tool") {
		family := map[*family]string{&ipv4: "ip", &ipv6: "ip6"}[t.family]
		return nil, plugin.Errorf(fmt.Sprintf("remove those rules: see `nft list table %s %s`", family, t.name),
			"%s can't list table %s: it has rules of nft that iptables does not understand", filepath.Base(save), t.name)
	}
	t.read = parseListing(t.family, text)
	return t.read, nil
}

// edit makes a change that is planned from what the table has, and plans anew when that has changed meanwhile, by programs
// that do not know our lock.
func (t *table) edit(ctx context.Context, plan func(*listing) []string) error {
	const tries = 3
	for n := 1; ; n++ {
		l, err := t.list(ctx)
		if err != nil {
			return err
		}
		lines := plan(l)
		if len(lines) == 0 {
			return nil
		}
		t.read = nil
		input := "*" + t.name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
		_, err = run(ctx, t.program, input, "--noflush", "--wait", strconv.Itoa(lockSeconds))
		var refused *refusal
		if n == tries || !errors.As(err, &refused) {
			return err
		}
	}
}

// change is what is to become of a table.
type change struct {
	chains []string // are made if they are missing
	shared []rule   // others need them too, and they stay
	own    []string // containers' chains: they and the jumps to them become what is wanted, or go
	wanted []rule
	gone   []rule // in other chains
}

// lines are the lines of iptables-restore that make it.
func (c change) lines(l *listing) (lines []string) {
	for _, chain := range c.chains {
		if !l.chains[chain] {
			lines = append(lines, "-N "+chain)
		}
	}
	for _, r := range c.shared {
		if l.has(r) {
			continue
		}
		lines = append(lines, r.add())
		if jump := isolationJump(r.family); r.target() == forwardChain && l.has(jump) {
			lines = append(lines, jump.remove(), jump.add()) // has to stay before it
		}
	}
	slices.Sort(c.own)
	c.own, c.wanted = slices.Compact(c.own), without(c.wanted, nil)
	for _, chain := range c.own {
		lines = append(lines, c.container(l, chain)...)
	}
	isOther := func(r rule) bool { return !r.isAbout(c.own) }
	gone := ids(filter(c.gone, isOther))
	for _, r := range l.rules {
		if gone[r.id()] {
			lines = append(lines, r.remove())
		}
	}
	for _, r := range filter(c.wanted, isOther) {
		if !l.has(r) {
			lines = append(lines, r.add())
		}
	}
	return lines
}

// container makes a chain, and the jumps to it, what they are to be. They are made anew as a whole if something differs: in
// the chain the order matters, and ip6tables-legacy (as of 1.8.9) takes rules for equal that differ in their ports only.
func (c change) container(l *listing, chain string) (lines []string) {
	var content, jumps []rule
	for _, r := range c.wanted {
		switch {
		case r.target() == chain:
			jumps = append(jumps, r)
		case r.chain == chain && r.first:
			content = slices.Insert(content, 0, r)
		case r.chain == chain:
			content = append(content, r)
		}
	}
	there := l.jumpsTo(chain)
	if l.chains[chain] == (len(content) > 0) && slices.EqualFunc(l.in(chain), content, sameRule) && slices.EqualFunc(there, jumps, sameRule) {
		return nil
	}
	for _, r := range there {
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
