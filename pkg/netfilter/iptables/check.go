package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// check tells what is missing of what an attachment is to have. It runs one
// program for each family, another one if something seems to be missing, and
// changes nothing.
func check(ctx context.Context, a attachment, w wants) error {
	p, err := openProbes()
	if err != nil {
		return err
	}
	defer p.close()
	for _, f := range w.families() {
		if err := checkFamily(ctx, p, f, a, w.in(f)); err != nil {
			return err
		}
	}
	return nil
}

func checkFamily(ctx context.Context, p *probes, f family, a attachment, w wants) error {
	fl, err := whereIs(p, f, a, w)
	if err != nil {
		return err
	}
	l, err := list(ctx, f, fl, a.use.table)
	if err != nil {
		return err
	}
	have := l.has()
	rules := slices.DeleteFunc(w.rules(), func(r rule) bool { return have[r.identity()] > 0 })
	if len(rules) == 0 {
		return nil
	}
	if sloppy(f, fl) {
		return mismatch(a, f, rules[0], fl)
	}
	return confirm(ctx, f, fl, a, rules)
}

// confirm lets iptables itself look for rules that the list does not show: other
// versions may print them otherwise.
func confirm(ctx context.Context, f family, fl flavour, a attachment, rules []rule) error {
	program, err := flavouredProgram(f, fl, "restore")
	if err != nil {
		return err
	}
	rules = rules[:min(len(rules), maxChecks)]
	lines := make([]string, 0, len(rules))
	for _, r := range rules {
		lines = append(lines, r.check())
	}
	err = program.restore(ctx, a.use.table, lines)
	var refused *refusal
	if errors.As(err, &refused) && !refused.locked() {
		if i := slices.Index(lines, refused.line); i >= 0 {
			return mismatch(a, f, rules[i], fl)
		}
	}
	return explain(err)
}

// whereIs finds the flavour in which the attachment has its rules: that of the
// plain names, or the other.
func whereIs(p *probes, f family, a attachment, w wants) (flavour, error) {
	order := flavours()
	if plain, err := plainProgram(f, "restore"); err == nil && plain.flavour != order[0] {
		order[0], order[1] = order[1], order[0]
	}
	mark := w.rules()[len(w.rules())-1]
	for _, fl := range order {
		if there, err := p.view(f, fl, a.use.table).may(mark); err != nil || there {
			return fl, err
		}
	}
	return order[0], mismatch(a, f, mark, order[0])
}

func mismatch(a attachment, f family, r rule, fl flavour) error {
	return plugin.Errorf(fmt.Sprintf("something removed it after ADD, such as a reload of the host's firewall: restart the container; see `%s -t %s`", flavouredName(f, fl, "save"), a.use.table), "table %s of iptables-%s (%s) lacks the rule of %s: %s", a.use.table, fl, f, a.key, r)
}
