// Package repair puts back what something took from attachments after their ADD: a flush of the packet filter, a reload of firewalld, somebody
// who removed an address or a route. The plugins do it, in this process: what their CHECK finds missing is made again from the configuration
// and the result that libcni has kept of ADD. No container is restarted, and no connection is cut.
//
// An attachment that is being deleted looks damaged, too. So what is found wrong is looked at again a moment later, when a DEL that was under
// way is over; and what was repaired is looked at once more in the end. If a DEL came in between, what was put back behind its back is
// removed. That leaves to GC: an attachment whose DEL takes longer than these two waits, or comes twice; and one without a veth pair, of
// which nothing on the host says that it is gone and not just being made again under the same id.
package repair

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Options say how to repair.
type Options struct {
	Plugins plugin.Table
	Path    []string // where runtimes have their plugins
	DryRun  bool     // change nothing, and say what CHECK finds

	// Progress, when set, is told how many attachments of how many are done.
	Progress func(done, all int)
}

// How long a DEL that is under way is given to end: before a repair, and after it.
const settleBefore, settleAfter = 300 * time.Millisecond, time.Second

// lockFile is locked while attachments are repaired: two at once would do everything twice.
const lockFile = "/run/cnibox/repair.lock"

// run is one call of Attachments.
type run struct {
	Options
	foreign map[string]bool // of the plugins that were looked for, which are not ours
}

// Attachments looks at attachments, and repairs those that are not right. The reports are in the order of the attachments.
func Attachments(ctx context.Context, attachments []*node.Attachment, o Options) ([]*Report, error) {
	r := &run{o, map[string]bool{}}
	ctx = iptables.KeepListings(ctx)
	var reports []*Report
	var wrong []*attempt
	for _, at := range attachments {
		a := &attempt{at, r, newReport(at)}
		reports = append(reports, a.report)
		if a.report.Outcome = a.look(ctx); a.report.Outcome == Wrong {
			wrong = append(wrong, a)
		}
		if ctx.Err() != nil {
			return reports, context.Cause(ctx)
		}
		r.progress(len(reports)-len(wrong), len(attachments))
	}
	if o.DryRun || len(wrong) == 0 {
		return reports, nil
	}
	lock, err := state.Hold(ctx, lockFile)
	if err != nil {
		return reports, err
	}
	defer lock.Release()
	return reports, r.repair(ctx, wrong, len(reports))
}

func (r *run) progress(done, all int) {
	if r.Progress != nil {
		r.Progress(done, all)
	}
}

// inOrder orders attachments by the age of their containers, and those of one container the youngest first: of two routes of a container to
// one destination the older one is put behind.
func inOrder(wrong []*attempt) {
	oldest := map[*node.Namespace]time.Time{}
	for _, a := range wrong {
		if t, known := oldest[a.Namespace]; !known || a.Result.Written.Before(t) {
			oldest[a.Namespace] = a.Result.Written
		}
	}
	slices.SortStableFunc(wrong, func(a, b *attempt) int {
		return cmp.Or(oldest[a.Namespace].Compare(oldest[b.Namespace]), b.Result.Written.Compare(a.Result.Written))
	})
}

func (r *run) repair(ctx context.Context, wrong []*attempt, all int) error {
	if err := wait(ctx, settleBefore); err != nil {
		return err
	}
	inOrder(wrong)
	changed := false
	for i, a := range wrong {
		begun := time.Now()
		a.report.Outcome = a.repair(ctx)
		a.report.Milliseconds = float64(time.Since(begun).Microseconds()) / 1000
		changed = changed || a.report.hasChanged()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.progress(all-len(wrong)+i+1, all)
	}
	if changed {
		if err := wait(ctx, settleAfter); err != nil {
			return err
		}
	}
	for _, a := range wrong {
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
