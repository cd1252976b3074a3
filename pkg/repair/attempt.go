package repair

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/request"
	"github.com/cnibox/cnibox/pkg/state"
)

// attempt is one attachment on its way.
type attempt struct {
	*node.Attachment
	*shared
	report *Report
	found  time.Time // when it was found wrong
	mended []int     // for each of the report's findings, the place of the plugin in the list
}

// written is when libcni wrote its result.
func (a *attempt) written() time.Time {
	if a.Result == nil {
		return time.Time{}
	}
	return a.Result.Written
}

// refuse says why an attachment can't be asked about, or is not there.
func (a *attempt) refuse(why error) Outcome {
	if errors.Is(why, plugin.ErrLost) {
		a.find(a.Plugins[0], why).fail(why)
		return Wrong
	}
	a.report.Why = why.Error()
	return Skipped
}

// recovered makes a finding of a panic in a plugin.
func (a *attempt) recovered(is *Outcome) {
	if p := recover(); p != nil {
		bug := plugin.Errorf("please report it", "bug: %v\n%s", p, debug.Stack())
		a.find("cnictl", bug).fail(bug)
		*is = Wrong
	}
}

// find notes what a plugin has found, and returns where to note what came of it.
func (a *attempt) find(name string, err error) *Finding {
	a.report.Plugins = append(a.report.Plugins, Finding{Plugin: name, Found: plugin.AsError(err).Msg})
	return &a.report.Plugins[len(a.report.Plugins)-1]
}

// look asks the plugins' CHECK, all of them if that is all there is to do.
func (a *attempt) look(ctx context.Context) {
	a.report.Outcome, a.found = a.check(ctx), time.Now()
	if a.report.Outcome != Wrong || a.DryRun {
		a.count()
	}
}

func (a *attempt) check(ctx context.Context) (is Outcome) {
	defer a.recovered(&is)
	if a.State == node.Gone {
		a.report.Why = a.Why
		return Gone
	}
	steps, err := a.begin()
	if err != nil {
		return a.refuse(err)
	}
	defer steps[0].request.Close()
	is = Right
	for _, s := range slices.Backward(steps) { // the packet filter, which all may have lost, comes with the last ones
		if err := s.plugin.Check(ctx, s.request); err != nil {
			a.find(s.name, err).fail(err)
			is = Wrong
		}
		if is == Wrong && !a.DryRun {
			return is // it is looked at again before anything is done
		}
	}
	if err := a.checkThere(steps); err != nil {
		a.report.Plugins = []Finding{}
		return a.refuse(err)
	}
	slices.Reverse(a.report.Plugins)
	return is
}

// settle waits until a DEL is over that was under way when the attachment was found wrong.
func (a *attempt) settle(ctx context.Context) error {
	return wait(ctx, time.Until(a.found.Add(cmp.Or(a.Settle, settleBefore))))
}

// repair has all plugins put back what is missing.
func (a *attempt) repair(ctx context.Context) {
	if a.settle(ctx) != nil {
		return
	}
	begun := time.Now()
	a.report.Outcome = a.putBack(ctx)
	a.report.Milliseconds = float64(time.Since(begun).Microseconds()) / 1000
}

func (a *attempt) putBack(ctx context.Context) (is Outcome) {
	defer a.recovered(&is)
	before := a.report.Plugins
	a.report.Plugins = []Finding{}
	if !a.isSame() {
		return Gone
	}
	steps, err := a.begin()
	if err != nil {
		return a.refuse(err)
	}
	defer steps[0].request.Close()
	if err := a.checkThere(steps); err != nil {
		return a.refuse(err)
	}
	is = Right
	for i, s := range steps {
		var putBack []string
		s.request.Trace = func(what string) { putBack = append(putBack, what) }
		found, left := request.PutBack(ctx, s.plugin, s.request)
		if found == nil {
			continue
		}
		f := a.find(s.name, found)
		f.PutBack = putBack
		a.mended = append(a.mended, i)
		switch {
		case left != nil:
			f.fail(left)
			is = Wrong
		case is == Right:
			is = Repaired
		}
		if errors.Is(left, plugin.ErrLost) {
			break
		}
	}
	if is == Right { // with another attachment, or by somebody else
		a.report.Plugins = before
		for i := range before {
			before[i].Left, before[i].Remedy = "", ""
		}
		is = Repaired
	}
	return is
}

// confirm asks CHECK whether all is back that was put back. That is not asked at once, as others wait for theirs.
func (a *attempt) confirm(ctx context.Context) {
	if len(a.mended) > 0 {
		a.report.Outcome = a.checkMended(ctx)
	}
	a.count()
}

func (a *attempt) checkMended(ctx context.Context) (is Outcome) {
	is = a.report.Outcome
	defer a.recovered(&is)
	steps, err := a.begin()
	if err != nil {
		a.find(a.Plugins[0], err).fail(err)
		return Wrong
	}
	defer steps[0].request.Close()
	for i, place := range a.mended {
		f := &a.report.Plugins[i]
		if f.Left != "" {
			continue
		}
		if err := a.repairAlone(ctx, steps[place]); err != nil {
			f.fail(err)
			is = Wrong
		}
	}
	return is
}

// repairAlone puts back what could not be put back with what others lack, and says what is left.
func (a *attempt) repairAlone(ctx context.Context, s *step) error {
	if s.plugin.Check(ctx, s.request) == nil {
		return nil
	}
	return state.Locked(ctx, lockFile, func() error {
		_, left := request.Repair(ctx, s.plugin, s.request)
		return left
	})
}

// isSame reports whether libcni has the same result as before.
func (a *attempt) isSame() bool {
	file, err := os.Stat(a.Result.Path)
	return err == nil && file.ModTime().Equal(a.Result.Written)
}

// lookAgain removes what was put back for an attachment that was deleted meanwhile: what plugins have on the host besides the host end, by
// which it is seen that it is gone, and that no ADD makes it again.
func (a *attempt) lookAgain(ctx context.Context) {
	if a.report.Outcome == Skipped {
		return
	}
	if _, err := os.Stat(a.Result.Path); errors.Is(err, os.ErrNotExist) {
		a.report.Outcome = Gone
	}
	if a.HostEnd == nil || !a.report.hasChanged() {
		return
	}
	r := &plugin.Request{Command: plugin.Del, Key: a.Key(), Results: a.resultsDir(), Plugins: a.Options.Plugins, Config: conf.New().Lenient()}
	_, err := r.Links().LinkByName(a.HostEnd.Name)
	end, failed := attach.HostEnd(r)
	if err == nil || failed != nil || end != nil {
		return
	}
	a.report.Outcome, a.report.Why = Gone, "it was deleted meanwhile, and what was put back is removed again" // or its DEL is under way
	errs := []error{netfilter.Del(ctx, r, nil, netfilter.Masquerade{}, netfilter.SpoofCheck{})}
	for _, row := range a.Options.Plugins {
		if row.Chained {
			errs = append(errs, row.Plugin.Del(ctx, r))
		}
	}
	if err := errors.Join(errs...); err != nil {
		a.report.Outcome, a.report.Why = Wrong, "it was deleted meanwhile, and what was put back can't be removed: "+err.Error()
	}
}
