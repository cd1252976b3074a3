package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Marked has iptables accept forwarded packets that have a bit of the mark set,
// for a backend that marks what may pass and can't accept it for good: a later
// chain, such as FORWARD with policy DROP, still drops it.
//
// The rules are the same for all attachments and stay. They are in each flavour
// that has a chain FORWARD, and if none has, in that of the plain program, so
// that a program started later, such as Docker, does not cut the containers off:
//
//	-A FORWARD -m comment --comment "cnibox firewall" -j CNIBOX-FORWARD
//	-A CNIBOX-FORWARD -j CNI-ADMIN
//	-A CNIBOX-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT
type Marked struct {
	Mark       uint32
	Addrs      []netip.Addr // whose families are meant
	AdminChain string       // "" is CNI-ADMIN

	// Conn is what nf_tables is asked over.
	Conn *nft.Conn
}

const (
	markedChain = "CNIBOX-FORWARD"
	hookChain   = "FORWARD"
)

// place is a table in which the rules belong.
type place struct {
	family  family
	flavour flavour
	probe   layout
}

// layout tells what is in chains of table filter.
type layout interface {
	hasChain(f family, table, chain string) (bool, error)

	// jumps returns where rules of a chain jump to, "" for one that does not.
	jumps(f family, chain string) ([]string, error)

	// drops tells whether chain FORWARD is there with the policy DROP.
	drops(f family) (bool, error)
}

// Accept makes the rules that are missing. If none is, no program runs.
func (m Marked) Accept(ctx context.Context) error {
	m, err := m.valid()
	if err != nil || len(m.Addrs) == 0 {
		return err
	}
	missing, err := m.missing(probesOver(m.Conn))
	if err != nil || len(missing) == 0 {
		return err
	}
	s, err := begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	// Again, now that nobody else of us makes them.
	if missing, err = m.missing(s.probes); err != nil {
		return err
	}
	for _, p := range missing {
		if err := m.complete(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Check tells whether a rule is missing.
func (m Marked) Check() error {
	m, err := m.valid()
	if err != nil || len(m.Addrs) == 0 {
		return err
	}
	missing, err := m.missing(probesOver(m.Conn))
	if err != nil || len(missing) == 0 {
		return err
	}
	p := missing[0]
	lines, err := m.lines(p)
	if err != nil {
		return err
	}
	return plugin.Errorf("something changed it after ADD (a flush, a restart of a firewall?): the ADD of any container makes it again", "iptables (%s, %s), table filter: what lets containers' packets pass is not complete: missing is %q", p.flavour, p.family, lines)
}

func (m Marked) valid() (Marked, error) {
	if m.AdminChain == "" {
		m.AdminChain = defaultAdminChain
	}
	return m, validateChain("iptablesAdminChainName", m.AdminChain)
}

// missing returns the places where a rule is missing.
func (m Marked) missing(probes *probes) ([]place, error) {
	families := m.families()
	if err := probes.ask(families, filterTable, hookChain, markedChain, m.AdminChain); err != nil {
		return nil, err
	}
	var out []place
	for _, f := range families {
		places, err := places(f, probes)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			lines, err := m.lines(p)
			if err != nil {
				return nil, err
			}
			if len(lines) > 0 && !p.unreachable() {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

func (m Marked) families() []family {
	var list []family
	for _, f := range families() {
		if len(f.of(m.Addrs)) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// places returns where the rules belong in a family.
func places(f family, probes *probes) ([]place, error) {
	var out []place
	for _, fl := range flavours() {
		p := place{f, fl, probes.layoutOf(fl)}
		there, err := p.probe.hasChain(f, filterTable, hookChain)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	program, err := plainProgram(f, "restore")
	if err != nil {
		return nil, nil // no iptables: nothing that it could drop
	}
	return []place{{f, program.flavour, probes.layoutOf(program.flavour)}}, nil
}

// unreachable tells whether nothing can be done, and need not be: there is no
// program, and chain FORWARD lets pass what it does not know.
func (p place) unreachable() bool {
	if _, err := flavouredProgram(p.family, p.flavour, "restore"); err == nil {
		return false
	}
	drops, err := p.probe.drops(p.family)
	return err == nil && !drops
}

// lines returns what makes the rules complete.
func (m Marked) lines(p place) ([]string, error) {
	var lines []string
	for _, chain := range []string{markedChain, m.AdminChain} {
		there, err := p.probe.hasChain(p.family, filterTable, chain)
		if err != nil {
			return nil, err
		}
		if !there {
			lines = append(lines, "-N "+chain)
		}
	}
	inside, err := p.probe.jumps(p.family, markedChain)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(inside, m.AdminChain) {
		lines = append(lines, "-I "+markedChain+" 1 -j "+m.AdminChain)
	}
	if !slices.Contains(inside, "") {
		lines = append(lines, fmt.Sprintf("-A %s -m mark --mark %#x/%#x -j ACCEPT", markedChain, m.Mark, m.Mark))
	}
	before, err := p.probe.jumps(p.family, hookChain)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(before, markedChain) {
		lines = append(lines, `-I `+hookChain+` 1 -m comment --comment "cnibox firewall" -j `+markedChain)
	}
	return lines, nil
}

func (m Marked) complete(ctx context.Context, p place) error {
	program, err := flavouredProgram(p.family, p.flavour, "restore")
	if err != nil {
		return fmt.Errorf("chain %s of iptables (%s, %s) drops what it does not know, and can't be told to let containers' packets pass: %w",
			hookChain, p.flavour, p.family, err)
	}
	lines, err := m.lines(p)
	if err != nil || len(lines) == 0 {
		return err
	}
	return explain(program.restore(ctx, filterTable, lines))
}
