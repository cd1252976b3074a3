// Package repair puts back what something took from attachments after their ADD: a flush of the packet filter, a reload of firewalld, somebody
// who removed an address or a route. The plugins do it, in this process: what their CHECK finds missing is made again from the configuration
// and the result that libcni has kept of ADD. No container is restarted, and no connection is cut.
//
// An attachment that is being deleted looks damaged, too. DEL notes that it has begun (pkg/presence) before it takes anything away, and nothing
// is put back from then on; while something is put back DEL waits. Others' plugins note nothing: so what is found wrong is looked at again a
// moment later, when a DEL that was under way is most likely over.
package repair

import (
	"context"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Options say how to repair.
type Options struct {
	Plugins plugin.Table
	Path    []string // where runtimes have their plugins
	DryRun  bool     // change nothing, and say what CHECK finds

	// Settle is for how long something has to be missing before it is put back, so that a DEL that is under way is let end; 0 is 300 ms.
	Settle time.Duration

	// Progress, when set, is told how many attachments of how many are done.
	Progress func(done, all int)
}

// settleBefore is how long a DEL that is under way is given to end, unless a repair is told otherwise.
const settleBefore = 300 * time.Millisecond

// lockFile is locked while attachments are repaired: two at once would do everything twice.
const lockFile = "repair.lock"

// Attachments looks at attachments, and repairs those that are not right: first what the host has of all of them, then what is in the
// containers. The reports are in the order of the attachments.
func Attachments(ctx context.Context, attachments []*node.Attachment, o Options) ([]*Report, error) {
	r, err := Now(ctx, attachments, o)
	if err == nil {
		_, err = r.LookInside(ctx, func(*node.Attachment) bool { return true })
	}
	return slices.DeleteFunc(r.Reports, func(report *Report) bool { return report.Outcome == "" }), err
}

// Run is a repair, of which the look into containers may be to come.
type Run struct {
	Reports []*Report // in the order of the attachments
	all     []*attempt
}

// Now is Attachments up to the moment when all is back on the host that can be.
func Now(ctx context.Context, attachments []*node.Attachment, o Options) (*Run, error) {
	r, s := &Run{}, newShared(o, len(attachments))
	for _, at := range attachments {
		a := &attempt{Attachment: at, shared: s, report: newReport(at)}
		r.all, r.Reports = append(r.all, a), append(r.Reports, a.report)
	}
	inOrder(r.all)
	return r, s.mend(ctx, r.all)
}

// LookInside looks into the containers of some of the attachments, and puts back what is missing there where the network asks for that. What
// others have changed in there is said. It returns reports of the insides alone.
func (r *Run) LookInside(ctx context.Context, isMeant func(*node.Attachment) bool) (inside []*Report, err error) {
	var list, later []*attempt
	for _, a := range r.all {
		if o := a.report.Outcome; o != Gone && o != Unknown && o != Skipped && isMeant(a.Attachment) {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	s := newShared(list[0].Options, len(list))
	for _, a := range list {
		later = append(later, &attempt{Attachment: a.Attachment, shared: s, report: newReport(a.Attachment), inside: true})
	}
	err = s.mend(ctx, later)
	for i, a := range list {
		inside = append(inside, later[i].report)
		a.report.add(later[i].report)
	}
	return inside, err
}

// mend looks at attachments, and repairs those that are wrong.
func (s *shared) mend(ctx context.Context, list []*attempt) error {
	if !s.DryRun {
		s.filter.Batch = nft.NewBatch() // so that CHECK asks once for a table that all have lost
	}
	err := each(ctx, list, (*attempt).look)
	s.filter.Batch = nil
	if err != nil || s.DryRun {
		return err
	}
	wrong := slices.DeleteFunc(slices.Clone(list), func(a *attempt) bool { return a.report.Outcome != Wrong })
	if len(wrong) == 0 {
		return nil
	}
	if err := wrong[0].settle(ctx); err != nil {
		return err
	}
	if err := state.Locked(ctx, lockFile, func() error { return s.putBack(ctx, wrong) }); err != nil {
		return err
	}
	return each(ctx, wrong, (*attempt).confirm)
}

// atOnce is how many attachments have their nftables put back at once: those that come first need not wait for all.
const atOnce = 200

func (s *shared) putBack(ctx context.Context, wrong []*attempt) error {
	batch := nft.NewBatch()
	s.filter.Batch = batch
	defer func() { s.filter.Batch = nil }()
	for part := range slices.Chunk(wrong, atOnce) {
		if err := each(ctx, part, (*attempt).repair); err != nil {
			return err
		}
		commit(ctx, batch, part)
	}
	return nil
}

// commit puts back what is put back at once, for those whose DEL has not begun since.
func commit(ctx context.Context, batch *nft.Batch, part []*attempt) {
	order := map[plugin.Key]int{}
	for i, a := range part {
		if lock, err := a.lock(ctx); err == nil {
			defer lock.Release()
			order[a.Key()] = i
		}
	}
	_ = batch.Commit(context.WithoutCancel(ctx), order) // what it leaves out confirm puts back, or says why it can't
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
