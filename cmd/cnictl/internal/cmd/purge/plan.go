package purge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Item is something on the node.
type Item struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"` // it stays or is in the way, or what of it goes

	remover
}

// remover removes a thing, if it is still there and nobody uses it.
type remover interface {
	Remove(ctx context.Context) error
}

// Plan is what would become of a node.
type Plan struct {
	Refused     []Item          `json:"refused"`     // what may be in use, because of which nothing goes
	Attachments []*collect.Item `json:"attachments"` // those that nobody uses
	Goes        []Item          `json:"goes"`
	Stays       []Item          `json:"stays"`
	Removed     bool            `json:"removed"`
}

// NewPlan looks at what there is, besides attachments, of which gc has made a report.
func NewPlan(ctx context.Context, n *node.Node, r *collect.Report) (*Plan, error) {
	p := &Plan{Refused: []Item{}, Attachments: r.Goes, Goes: []Item{}, Stays: []Item{}}
	p.refuse(n, r)
	p.addLinks(n)
	filter, staying, err := netfilter.Leavings(ctx)
	for _, l := range filter {
		what, why, _ := strings.Cut(l.String(), ": ")
		p.Goes = append(p.Goes, Item{What: what, Why: why, remover: l})
	}
	for _, what := range staying {
		p.stay(what, "it is the administrator's, and has rules or is used")
	}
	p.addFiles(n, r)
	p.addSettings()
	return p, err
}

func (p *Plan) stay(what, why string) { p.Stays = append(p.Stays, Item{What: what, Why: why}) }

func (p *Plan) refused(what, why string) { p.Refused = append(p.Refused, Item{What: what, Why: why}) }

// refuse notes what may be in use: all that gc keeps.
func (p *Plan) refuse(n *node.Node, r *collect.Report) {
	for _, s := range r.Stays {
		p.refused(cmp.Or(s.What, "attachment "+s.Owner), s.Why)
	}
	for _, s := range r.Stops {
		if len(s.Attachments) == 0 {
			p.refused("all attachments", s.Why)
		}
	}
	for _, u := range r.Unread {
		if filepath.Base(filepath.Dir(u.What)) == "results" {
			p.refused("result "+u.What, "it can't be read, and may be of a container that runs; if it is not, remove the file: "+u.Why)
		}
	}
	p.refuseStrangers(n)
}

// RefusedText names what may be in use, the first of many.
func (p *Plan) RefusedText() string {
	const most = 10
	var texts []string
	for _, t := range p.Refused {
		texts = append(texts, t.What)
	}
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// Remove removes what goes. It tries all.
func (p *Plan) Remove(ctx context.Context) error {
	var errs []error
	for i := range p.Goes {
		if err := p.Goes[i].Remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", p.Goes[i].What, err))
		}
	}
	p.Removed = len(errs) == 0
	return errors.Join(errs...)
}
