package sbr

import (
	"context"
	"errors"
	"fmt"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/route"
)

// Repair implements plugin.Repairer. Routes that the plugin before in the chain has put back into the main table are moved into the
// interface's own, as by ADD.
func (Plugin) Repair(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	h, l, err := attach.Interface(r)
	if err != nil {
		return err
	}
	rules, err := link.Rules(h)
	if err != nil {
		return err
	}
	var errs []error
	for i := range c.sources {
		s := &c.sources[i]
		if at := c.ruleOf(*s, rules); at >= 0 {
			s.table = rules[at].Table // the reference plugin chooses another
			continue
		}
		r.Announce(fmt.Sprintf("lead packets from %s to table %d", s.prefix.Addr(), s.table))
		if err := h.RuleAdd(s.rule()); err != nil {
			errs = append(errs, fmt.Errorf("add the rule for packets from %s: %w", s.prefix.Addr(), err))
		}
	}
	p, err := c.plan(ctx, h, l.Attrs().Index)
	if err != nil {
		return err
	}
	if len(p.own)+len(p.moved)+len(p.hints) > 0 {
		r.Announce("fill the interface's tables")
	}
	if err := route.Add(ctx, h, p.own); err != nil { // until they are filled packets go by the main table
		return errors.Join(append(errs, withRemedy(err))...)
	}
	return errors.Join(append(errs, route.Delete(ctx, h, p.moved), withRemedy(route.Add(ctx, h, p.hints)))...)
}
