package iptables

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// del removes what an attachment has, and returns those of the rules that only
// it had, as far as they are known. It runs no program and takes no lock when
// there is nothing, which look finds out.
func del(ctx context.Context, look *Backend, a attachment, hint []netip.Addr) ([]rule, error) {
	there, err := look.anything(a, hint)
	if err != nil || !there {
		return nil, err
	}
	s, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	r, err := loadRecord(a)
	if err != nil {
		return nil, err
	}
	return s.remove(ctx, a, r, hint)
}

// anything tells whether an attachment may have rules. Every DEL asks that, and on
// most hosts nothing of iptables is there: that is found out without the names of
// the record and of chains, whose hash alone takes as long as the rest.
func (b *Backend) anything(a attachment, hint []netip.Addr) (bool, error) {
	r := &record{}
	if recordsKept() {
		var err error
		if r, err = loadRecord(a); err != nil || len(r.sections) > 0 {
			return r != nil && r.of(a.key.IfName) != nil, err
		}
	}
	if a.use.prefix == "" && len(hint) == 0 {
		return false, nil // nothing to know it by
	}
	p, err := b.probes()
	if err != nil {
		return false, err
	}
	defer p.close()
	if there, err := p.hasTable(a.use.table); err != nil || !there {
		return false, err
	}
	both := families()
	if err := p.ask(both[:], a.use.table, a.places()...); err != nil {
		return false, err
	}
	for _, f := range both {
		rm := a.removal(f, r, hint)
		for _, fl := range flavours() {
			if found, err := rm.find(p.view(f, fl, a.use.table)); err != nil || !found.empty() {
				return true, err
			}
		}
	}
	return false, nil
}

// remove removes what the attachment has: in the kernel, the record r that it is
// in, and the indexes.
func (s *session) remove(ctx context.Context, a attachment, r *record, hint []netip.Addr) ([]rule, error) {
	own := r.of(a.key.IfName)
	if own == nil && len(r.sections) > 0 {
		return nil, nil // what is there is of other interfaces
	}
	var removed []rule
	var errs []error
	for _, f := range families() {
		rm := a.removal(f, r, hint)
		for _, fl := range flavours() {
			rules, err := s.take(ctx, f, fl, a.use.table, rm)
			removed = append(removed, rules...)
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil || own == nil {
		return removed, err
	}
	removed = own.rules
	leave(a.owner(), indexNames(own))
	if own.protection != nil {
		own.protection.leave(a.owner())
	}
	r.drop(a.key.IfName)
	return removed, r.write()
}

// removal is what is to go from a table of one family.
type removal struct {
	chains []string // with all that is in them and all that jumps to them
	rules  []rule   // all that is known to go, also of the chains

	// stays is the container's chain if its other interfaces need it.
	stays string

	// known says that rules are all there is.
	known bool

	// from, unless it is nil, limits the jumps to those for addresses. The chain
	// stays if there are others.
	from []netip.Addr
}

func (rm removal) empty() bool { return len(rm.chains) == 0 && len(rm.rules) == 0 }

// removal returns what is to go with an attachment.
func (a attachment) removal(f family, r *record, hint []netip.Addr) removal {
	own, kept := r.of(a.key.IfName), identities(r.others(a.key.IfName))
	var rm removal
	switch {
	case own != nil:
		rm.known = true
		rm.rules = slices.DeleteFunc(in(f, own.rules), func(r rule) bool { return kept[r.identity()] || r.addr.IsValid() && passedOn(a, r) })
		if own.protection != nil && slices.Contains(own.protection.families, f) {
			rm.rules = append(rm.rules, own.protection.obsolete(f, a.owner())...)
		}
	case len(a.chains()) == 0:
		for _, addr := range f.of(hint) {
			rm.rules = append(rm.rules, addressRules(addr)...)
		}
		rm.rules = slices.DeleteFunc(rm.rules, func(r rule) bool { return passedOn(a, r) })
	}
	if len(kept) > 0 {
		rm.stays = a.chain()
		return rm
	}
	rm.chains = a.chains()
	rm.known = rm.known && len(rm.rules) > 0
	if own == nil && a.use.prefix == masqueradePrefix && len(hint) > 0 {
		rm.from = f.of(hint)
	}
	return rm
}

// passedOn tells whether the address of a rule is another attachment's by now.
func passedOn(a attachment, r rule) bool {
	if owner := ownerOf(addressEntry(r)); owner == "" || owner == a.owner() {
		return false
	}
	_, _, held := holder(addressEntry(r))
	return held
}

// find returns what of the removal may be in a table.
func (rm removal) find(v *view) (found removal, err error) {
	found = removal{stays: rm.stays, known: rm.known, from: rm.from}
	for i, chain := range rm.chains {
		there, err := v.has(chain)
		if err != nil {
			return found, err
		}
		if there {
			found.chains = append(found.chains, chain)
			found.known = found.known && i == 0
		}
	}
	for _, r := range rm.rules {
		there, err := v.may(r)
		if err != nil {
			return found, err
		}
		if there {
			found.rules = append(found.rules, r)
		}
	}
	return found, nil
}

// take makes the removal in one flavour, and returns the rules that were in the
// chains that went.
func (s *session) take(ctx context.Context, f family, fl flavour, table string, rm removal) (removed []rule, err error) {
	found, err := rm.find(s.view(f, fl, table))
	if err != nil || found.empty() {
		return nil, err
	}
	p, err := flavouredProgram(f, fl, "restore")
	if err != nil {
		return nil, err
	}
	exact := !sloppy(f, fl)
	if found.known && (exact || found.stays == "") {
		err := p.restore(ctx, table, found.guess())
		if err == nil || !worthAnother(err) {
			s.probes.forget()
			return nil, explain(err)
		}
	}
	err = s.replan(ctx, p, f, table, func(l listing) ([]string, error) {
		var lines []string
		lines, removed = rm.plan(l, exact)
		return lines, nil
	})
	s.probes.forget()
	return removed, err
}

// guess plans from what is known.
func (rm removal) guess() []string {
	var lines []string
	for _, r := range rm.rules {
		if !slices.Contains(rm.chains, r.chain) {
			lines = append(lines, r.remove())
		}
	}
	for _, chain := range rm.chains {
		lines = append(lines, "-F "+chain, "-X "+chain)
	}
	return lines
}

// plan plans from what is there. exact says that iptables finds each rule by its
// text.
func (rm removal) plan(l listing, exact bool) (lines []string, removed []rule) {
	for _, chain := range rm.chains {
		if !l.chains[chain] {
			continue
		}
		jumps := l.jumpsTo(chain)
		ours := slices.DeleteFunc(slices.Clone(jumps), func(r rule) bool { return !rm.isFrom(r) })
		for _, r := range ours {
			lines = append(lines, r.remove())
		}
		if len(ours) == len(jumps) {
			removed = append(removed, l.inChain(chain)...)
			lines = append(lines, "-F "+chain, "-X "+chain)
		}
	}
	wanted := identities(rm.rules)
	if !exact && rm.stays != "" && l.chains[rm.stays] {
		return l.rebuild(rm.stays, wanted), nil
	}
	for _, r := range l.rules {
		if wanted[r.identity()] && !slices.Contains(rm.chains, r.chain) && !slices.Contains(rm.chains, r.target()) {
			lines = append(lines, r.remove())
		}
	}
	return lines, removed
}

// isFrom tells whether a jump is for one of the addresses that the removal is
// limited to. Older versions of the reference plugins name the network's prefix
// with the address.
func (rm removal) isFrom(r rule) bool {
	if rm.from == nil {
		return true
	}
	w, _ := words(r.spec)
	p, err := netip.ParsePrefix(option(w, "-s"))
	return err == nil && slices.ContainsFunc(rm.from, p.Contains)
}
