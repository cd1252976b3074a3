package repair

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/pkg/state"
)

// attempt is one attachment on its way.
type attempt struct {
	*node.Attachment
	*shared
	report *Report
	inside bool      // the container's side is looked at, and not the host's alone
	rights rights    // what may be changed, when the configuration was read
	found  time.Time // when it was found wrong
	noted  bool      // its ADD has noted it, so that its DEL waits
	mended []int     // for each of the report's findings, the place of the plugin in the list
}

// refuse says why an attachment can't be asked about, or is not there.
func (a *attempt) refuse(why error) Outcome {
	if errors.Is(why, plugin.ErrLost) {
		if a.inside { // which the look at the host has said, unless a DEL is under way
			return Right
		}
		a.find(a.Plugins[0], why).fail(why)
		return Wrong
	}
	a.report.Why = why.Error()
	isYoung := a.Since == nil || time.Since(*a.Since) < time.Minute
	switch {
	case errors.Is(why, errEnded), errors.Is(why, errDeleted), errors.Is(why, netns.ErrNotExist):
		return Gone
	case errors.Is(why, errNoResult) && isYoung: // its ADD may be under way
		return Unknown
	case errors.Is(why, errUnasked), errors.Is(why, presence.ErrDeleting):
		return LeftAlone
	case a.State != node.Alive:
		return Unknown
	}
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

// Broken is what of an attachment is not as its ADD made it.
var Broken = codes.Declare(finding.Code{Name: "attachment-broken", Severity: finding.Error,
	Meaning: "Something has changed what ADD made: CHECK fails.",
	Remedy:  "`cnictl repair NETWORK`"})

// Older is what of an attachment is as another version made it.
var Older = codes.Declare(finding.Code{Name: "rules-older", Severity: finding.Warning,
	Meaning: "The packet filter has the rules of another version of cnibox. Whether all of them are there is not looked at.",
	Remedy:  "`cnictl repair NETWORK`"})

// find notes what a plugin has found, and returns where to note what came of it.
func (a *attempt) find(name string, err error) *Finding {
	code := Broken
	if errors.Is(err, nft.ErrOther) {
		code = Older
	}
	a.report.Plugins = append(a.report.Plugins, Finding{Plugin: name, Finding: code.Found(nil, "%s", plugin.AsError(err).Msg)})
	return &a.report.Plugins[len(a.report.Plugins)-1]
}

// look asks the plugins' CHECK, all of them if that is all there is to do.
func (a *attempt) look(ctx context.Context) {
	a.report.Outcome, a.found = a.check(ctx), time.Now()
	if a.report.Outcome == Wrong && !a.mayChange() {
		a.leave()
	}
	if a.report.Outcome != Wrong || a.DryRun {
		a.count()
	}
}

// isHosts reports whether what a look into a container finds is the host's side, which was looked at before: a DEL may be under way.
func (a *attempt) isHosts(ctx context.Context, s *step) bool {
	if !a.inside || a.mayChange() {
		return false
	}
	own := *s.request
	own.HostSide = true
	return request.Check(ctx, s.plugin, &own) != nil
}

// mayChange reports whether what is found on the side that is looked at may be put back.
func (a *attempt) mayChange() bool {
	return a.rights == rightsAll || a.rights == rightsHost && !a.inside
}

// Changed is what of an attachment is other than its ADD made it, and is not for cnibox to change.
var Changed = codes.Declare(finding.Code{Name: "container-changed", Severity: finding.Info,
	Meaning: "A container has changed what it has inside, or is left alone by `repair`: what is other than ADD has made it."})

// leave leaves alone what was found.
func (a *attempt) leave() {
	a.report.Outcome = LeftAlone
	for i := range a.report.Plugins {
		f := &a.report.Plugins[i]
		f.Finding, f.LeftAlone = Changed.Found(nil, "%s", f.Summary), true
		switch {
		case a.rights == rightsHost:
			f.Left, f.Remedy = "that is inside the container, and cnibox leaves it alone", insideRemedy
		case IsLeft(a.Attachment):
			f.Remedy = "take the container back with `cnictl repair --leave=false " + a.ContainerID + "`, or restart it"
		default:
			f.Remedy = noneRemedy
		}
	}
}

const (
	insideRemedy = "restart the container if it has not done that itself; `\"repair\": \"all\"` of a network is for what is in its containers, too"
	noneRemedy   = "remove `\"repair\": \"none\"` from the network, and restart the container"
)

func (a *attempt) check(ctx context.Context) (is Outcome) {
	defer a.recovered(&is)
	if a.State.IsOver() {
		a.report.Why = a.Why
		return Gone
	}
	if !a.DelBegan().IsZero() {
		return a.refuse(presence.ErrDeleting)
	}
	steps, err := a.begin()
	if err != nil {
		return a.refuse(err)
	}
	defer steps[0].request.Close()
	is = Right
	way := plugin.Checks
	if a.DryRun {
		way = plugin.Looks
	}
	for _, s := range slices.Backward(steps) { // the packet filter, which all may have lost, comes with the last ones
		if found := plugin.Ask(ctx, s.plugin, s.request, way).Found(); len(found) > 0 && !a.isHosts(ctx, s) {
			for _, err := range slices.Backward(found) {
				a.find(s.name, err).fail(err)
			}
			is = Wrong
		}
		if is == Wrong && !a.DryRun && a.mayChange() {
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
	lock, err := a.lock(ctx)
	if err != nil {
		return a.refuse(err)
	}
	defer lock.Release()
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
		if errors.Is(left, plugin.ErrLost) || errors.Is(left, plugin.ErrInTheWay) {
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

// confirm asks CHECK whether all is back that was put back. That is not asked at once, as others wait for their repair. Something may still be
// wrong because a DEL has begun meanwhile.
func (a *attempt) confirm(ctx context.Context) {
	defer a.count()
	if a.report.Outcome != Wrong && len(a.mended) == 0 {
		return
	}
	lock, err := a.lock(ctx)
	lock.Release() // who waits for others must not have a DEL wait
	if err == nil && len(a.mended) > 0 {
		a.report.Outcome, err = a.checkMended(ctx)
	}
	if err != nil {
		a.report.Plugins = []Finding{}
		a.report.Outcome = a.refuse(err)
	}
}

// checkMended fails if a DEL has begun meanwhile.
func (a *attempt) checkMended(ctx context.Context) (is Outcome, err error) {
	is = a.report.Outcome
	defer a.recovered(&is)
	steps, err := a.begin()
	if err != nil {
		a.find(a.Plugins[0], err).fail(err)
		return Wrong, nil
	}
	defer steps[0].request.Close()
	for i, at := range a.mended {
		f := &a.report.Plugins[i]
		if f.Left != "" {
			continue
		}
		switch err := a.repairAlone(ctx, steps[at]); {
		case errors.Is(err, errDeleted), errors.Is(err, presence.ErrDeleting):
			return is, err
		case err != nil:
			f.fail(err)
			is = Wrong
		}
	}
	return is, nil
}

// repairAlone puts back what could not be put back with what others lack, and says what is left.
func (a *attempt) repairAlone(ctx context.Context, s *step) error {
	if request.Check(ctx, s.plugin, s.request) == nil {
		return nil
	}
	return state.Locked(ctx, lockFile, func() error {
		lock, err := a.lock(ctx)
		if err != nil {
			return err
		}
		defer lock.Release()
		_, left := request.Repair(ctx, s.plugin, s.request)
		return left
	})
}

// lock has a DEL of the attachment wait until the lock is released. It fails if one has begun since the attachment was found wrong.
func (a *attempt) lock(ctx context.Context) (*state.Lock, error) {
	lock, err := presence.DefaultNotes.DelayDel(ctx, a.Key(), a.Made())
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(a.Result.Path)
	isSame := err == nil && file.ModTime().Equal(a.Result.Written)
	if !isSame || a.noted && lock == nil {
		lock.Release()
		return nil, errDeleted
	}
	a.noted = lock != nil
	return lock, nil
}
