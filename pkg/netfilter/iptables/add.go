package iptables

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// wants is what an attachment is to have.
type wants struct {
	chains     []string // that others use too
	shared     []rule   // that others need too, and that stay
	bridges    []rule   // that stay until nobody wants the protection
	own        []rule
	protection *protection
	results    string // netfilter.PortMaps.Results

	// after is done when the rules are in place; nil for nothing.
	after func() error
}

func (w wants) in(f family) wants {
	w.shared, w.bridges, w.own = in(f, w.shared), in(f, w.bridges), in(f, w.own)
	return w
}

// rules returns all rules, in the order in which they are added.
func (w wants) rules() []rule { return slices.Concat(w.shared, w.bridges, w.own) }

// families returns those that have rules.
func (w wants) families() []family {
	var list []family
	for _, f := range families() {
		if len(w.in(f).rules()) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// add gives the attachment what it is to have, in place of what it had.
func add(ctx context.Context, a attachment, w wants) error {
	if len(w.families()) == 0 {
		_, err := del(ctx, New(), a, nil)
		return err
	}
	s, err := begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	return s.add(ctx, a, w)
}

func (s *session) add(ctx context.Context, a attachment, w wants) (err error) {
	r, err := loadRecord(a)
	if err != nil {
		return err
	}
	want := section{ifName: a.key.IfName, rules: w.own, protection: w.protection}
	if old := r.of(want.ifName); old != nil && !old.equal(&want) {
		if _, err := s.remove(ctx, a, r, nil); err != nil {
			return err
		}
	}
	if err := s.freePorts(ctx, a, want.rules, w.results); err != nil {
		return err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("remove the rules of iptables again", func(ctx context.Context) error {
		s.probes.forget()
		_, err := s.remove(ctx, a, r, nil)
		return err
	})
	fresh := w.protection.fresh()
	if err := s.note(a, r, want); err != nil {
		return err
	}
	for _, f := range w.families() {
		if err := s.ensure(ctx, f, a, w.in(f), r.others(want.ifName), fresh[f]); err != nil {
			return err
		}
	}
	if w.after != nil {
		return w.after()
	}
	return nil
}

// note writes down what the attachment is about to have.
func (s *session) note(a attachment, r *record, want section) error {
	if r.of(want.ifName) == nil {
		r.sections = append(r.sections, want)
	}
	if err := r.write(); err != nil {
		return err
	}
	if err := enter(a.owner(), indexNames(&want)); err != nil {
		return err
	}
	if want.protection == nil {
		return nil
	}
	return want.protection.enter(a.owner())
}

// freePorts makes sure that nobody else has the ports that rules publish.
func (s *session) freePorts(ctx context.Context, a attachment, rules []rule, results string) error {
	for _, rule := range rules {
		m, ok := portMapOf(rule)
		if !ok {
			continue
		}
		entry := portEntry(rule.family, m)
		if owner := ownerOf(entry); owner == "" || owner == a.owner() {
			continue
		}
		r, ifName, ok := holder(entry)
		if !ok {
			continue
		}
		if err := s.takeOver(ctx, attachment{a.use, r.key(ifName)}, r, rule.family, m, results); err != nil {
			return err
		}
	}
	return nil
}

// takeOver takes a port from an attachment that is gone: it has no rules any
// more, its address has been leased to the container that the port is to lead
// to, or its network namespace is known to be gone.
func (s *session) takeOver(ctx context.Context, owner attachment, r *record, f family, m netfilter.PortMap, results string) error {
	there, err := s.hasChain(f, owner.use.table, owner.chain())
	if err != nil || !there {
		return err
	}
	if !hasAddress(r.of(owner.key.IfName), m) {
		if gone, known := netfilter.Gone(results, owner.key); !gone {
			return portTaken(m, owner.key, known)
		}
	}
	_, err = s.remove(ctx, owner, r, nil)
	return err
}

// hasAddress tells whether a section publishes ports of the address that a port
// map leads to.
func hasAddress(s *section, m netfilter.PortMap) bool {
	return slices.ContainsFunc(s.rules, func(r rule) bool {
		other, ok := portMapOf(r)
		return ok && other.Container.Addr() == m.Container.Addr()
	})
}

// hasChain tells whether a chain is there in either flavour.
func (s *session) hasChain(f family, table, chain string) (bool, error) {
	for _, fl := range flavours() {
		if there, err := s.probes.of(fl).hasChain(f, table, chain); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

func portTaken(m netfilter.PortMap, owner plugin.Key, known string) error {
	return plugin.Errorf(fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known), "host port %s is already published by %s", m, owner)
}

// ensure adds what is missing of the attachment's rules in one family. others
// are those of the container's other interfaces.
func (s *session) ensure(ctx context.Context, f family, a attachment, w wants, others []rule, fresh freshness) error {
	p, err := plainProgram(f, "restore")
	if err != nil {
		return err
	}
	exact := !sloppy(f, p.flavour)
	if exact && !fresh.policy {
		lines, err := w.guess(s.view(f, p.flavour, a.use.table), a.chain())
		if err != nil {
			return err
		}
		if len(lines) > 0 {
			if err = p.restore(ctx, a.use.table, lines); err == nil || !worthAnother(err) {
				s.probes.forget()
				return explain(err)
			}
		}
	}
	return s.replan(ctx, p, f, a.use.table, func(l listing) ([]string, error) {
		if fresh.policy {
			if err := w.protection.spare(f, l, fresh); err != nil {
				return nil, err
			}
			fresh.policy = false
		}
		return w.missing(l, a.chain(), others, exact), nil
	})
}

// maxChecks is how many rules are looked for by their text. Each is compared
// with all others of its chain, which with thousands takes minutes.
const maxChecks = 64

// guess plans from what the kernel tells of chains: what can't be there is
// added, and what can be there must be there. No lines means that this won't do.
func (w wants) guess(v *view, own string) ([]string, error) {
	var lines []string
	for _, chain := range w.allChains(own) {
		there, err := v.has(chain)
		if err != nil {
			return nil, err
		}
		if !there {
			lines = append(lines, "-N "+chain)
		}
	}
	checks := 0
	for _, r := range w.rules() {
		may, err := v.may(r)
		switch {
		case err != nil:
			return nil, err
		case may && checks == maxChecks:
			return nil, nil
		case may:
			checks++
			lines = append(lines, r.check())
			continue
		case r.target() == forwardChain:
			if behind, err := v.has(stage1); err != nil || behind {
				return nil, err
			}
		}
		lines = append(lines, r.add())
	}
	return lines, nil
}

func (w wants) allChains(own string) []string {
	if own == "" {
		return w.chains
	}
	return append(w.chains[:len(w.chains):len(w.chains)], own)
}

// missing plans from what is there. Unless all of the attachment's own rules
// are there once, they are added anew, since their order matters. exact says
// that iptables finds each rule by its text.
func (w wants) missing(l listing, own string, others []rule, exact bool) []string {
	var lines []string
	for _, chain := range w.allChains(own) {
		if !l.chains[chain] {
			lines = append(lines, "-N "+chain)
		}
	}
	have, kept := l.has(), identities(others)
	for _, r := range slices.Concat(w.shared, w.bridges) {
		if have[r.identity()] > 0 {
			continue
		}
		lines = append(lines, r.add())
		if jump := isolationJump(r.family); r.target() == forwardChain && have[jump.identity()] > 0 {
			lines = append(lines, jump.remove(), jump.add())
		}
	}
	if !slices.ContainsFunc(w.own, func(r rule) bool { return have[r.identity()] != 1 }) {
		return lines
	}
	ours := identities(w.own)
	if !exact && len(others) > 0 && l.chains[own] {
		maps.DeleteFunc(ours, func(id string, _ bool) bool { return kept[id] })
		lines = append(lines, l.rebuild(own, ours)...)
		clear(ours)
	}
	for _, r := range l.rules {
		if id := r.identity(); ours[id] && !kept[id] {
			lines = append(lines, r.remove())
		}
	}
	for _, r := range w.own {
		if id := r.identity(); !kept[id] || have[id] == 0 {
			lines = append(lines, r.add())
		}
	}
	return lines
}

// freshness tells what of a bridge's protection nobody here has asked for yet.
type freshness struct {
	policy, bridge bool
}

func (p *protection) fresh() map[family]freshness {
	fresh := map[family]freshness{}
	if p == nil {
		return fresh
	}
	for _, f := range p.families {
		fresh[f] = freshness{policy: !exists(p.dir(f)), bridge: !exists(bridgeDir(f, p.bridge))}
	}
	return fresh
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// spare marks the rules of a bridge that were there before as not ours to
// remove.
func (p *protection) spare(f family, l listing, fresh freshness) error {
	have, rules := l.has(), p.rules(f)
	if have[rules[0].identity()] > 0 {
		if err := mark(p.dir(f)); err != nil {
			return err
		}
	}
	if fresh.bridge && have[rules[len(rules)-1].identity()] > 0 {
		return mark(bridgeDir(f, p.bridge))
	}
	return nil
}

func mark(dir string) error { return os.WriteFile(filepath.Join(dir, foreign), nil, 0o644) }
