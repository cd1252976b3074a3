// Package repair puts back what something took from attachments after their ADD: a flush of the packet filter, a reload of firewalld, somebody
// who removed an address or a route. The plugins do it, in this process: what their CHECK finds missing is made again from the configuration
// and the result that libcni has kept of ADD. No container is restarted, and no connection is cut.
//
// An attachment that is being deleted looks damaged, too. So what is found wrong is looked at again a moment later, when a DEL that was under
// way is over; and what was repaired is looked at once more in the end. Others may be repaired meanwhile. If a DEL came in between, what was put back behind its back is
// removed. That leaves to GC: an attachment whose DEL takes longer than these two waits, or comes twice; and one without a veth pair, of
// which nothing on the host says that it is gone and not just being made again under the same id.
package repair

import (
	"context"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/node"
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

// How long a DEL that is under way is given to end: before a repair, unless it is told otherwise, and after it.
const settleBefore, settleAfter = 300 * time.Millisecond, time.Second

// lockFile is locked while attachments are repaired: two at once would do everything twice.
const lockFile = "/run/cnibox/repair.lock"

// Attachments looks at attachments, and repairs those that are not right. The reports are in the order of the attachments.
func Attachments(ctx context.Context, attachments []*node.Attachment, o Options) ([]*Report, error) {
	r, err := Now(ctx, attachments, o)
	if err == nil {
		err = r.LookAgain(ctx)
	}
	return r.Reports, err
}

// Run is a repair, of which only the last look is to come.
type Run struct {
	Reports []*Report // in the order of the attachments
	wrong   []*attempt
	ended   time.Time // when the last one was repaired
}

// Now is Attachments up to the moment when all is back that can be. LookAgain has to be called then; other repairs may go on meanwhile.
func Now(ctx context.Context, attachments []*node.Attachment, o Options) (*Run, error) {
	r, s := &Run{}, newShared(o, len(attachments))
	var all []*attempt
	for _, at := range attachments {
		a := &attempt{Attachment: at, shared: s, report: newReport(at)}
		all, r.Reports = append(all, a), append(r.Reports, a.report)
	}
	inOrder(all)
	ctx = iptables.KeepListings(ctx)
	looking := ctx
	if !o.DryRun {
		looking, _ = nft.Together(ctx)
	}
	if err := each(looking, all, (*attempt).look); err != nil {
		r.Reports = slices.DeleteFunc(r.Reports, func(report *Report) bool { return report.Outcome == "" })
		return r, err
	}
	if !o.DryRun {
		r.wrong = slices.DeleteFunc(all, func(a *attempt) bool { return a.report.Outcome != Wrong })
	}
	if len(r.wrong) == 0 {
		return r, nil
	}
	return r, r.repair(ctx)
}

func (r *Run) repair(ctx context.Context) error {
	if err := r.wrong[0].settle(ctx); err != nil {
		return err
	}
	err := state.Locked(ctx, lockFile, func() error { return r.putBack(ctx) })
	r.ended = time.Now()
	if err != nil {
		return err
	}
	return each(ctx, r.wrong, (*attempt).confirm)
}

// atOnce is how many attachments have their nftables put back at once: those that come first need not wait for all.
const atOnce = 200

func (r *Run) putBack(ctx context.Context) error {
	order := map[plugin.Key]int{}
	for i, a := range r.wrong {
		order[a.Key()] = i
	}
	together, batch := nft.Together(ctx)
	for part := range slices.Chunk(r.wrong, atOnce) {
		err := each(together, part, (*attempt).repair)
		_ = batch.Commit(context.WithoutCancel(ctx), order) // what it leaves out confirm puts back, or says why it can't
		if err != nil {
			return err
		}
	}
	return nil
}

// HasChanged reports whether anything was put back.
func (r *Run) HasChanged() bool {
	return slices.ContainsFunc(r.wrong, func(a *attempt) bool { return a.report.hasChanged() })
}

// LookAgain waits until a DEL that was under way is over, and removes what was put back behind its back.
func (r *Run) LookAgain(ctx context.Context) error {
	if r.HasChanged() {
		if err := wait(ctx, time.Until(r.ended.Add(settleAfter))); err != nil {
			return err
		}
	}
	for _, a := range r.wrong {
		a.lookAgain(ctx)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
