package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// everything is why all is looked at though nothing is known to be hit.
const everything = "the look at everything"

// start is why all is looked at first.
const start = "the agent starts"

// again is why all is looked at after a pause.
const again = "what is taken away again and again"

// patient is how long something has to be missing that no event told of: it is most likely a DEL that takes it away.
const patient = 5 * time.Second

// startMend is mend in the background, when there is a place for it.
func (a *Agent) startMend(ctx context.Context, hits hits) {
	select {
	case a.places <- struct{}{}:
		a.work.Go(func() { a.mend(ctx, hits) })
	case <-ctx.Done():
	}
}

// mend puts back what hits have taken. It has a place, which it frees when all is back on the host: nobody need wait for a look into containers.
func (a *Agent) mend(ctx context.Context, hits hits) {
	begun := time.Now()
	if hits.isOwn() {
		a.thrift.begin()
		defer a.thrift.end(a.Every)
	}
	n := node.Read(ctx, a.Options.Options)
	attachments, isAll := hits.attachments(n)
	if hits.isOwn() { // when nobody waits for it
		number(attachments)
	}
	attachments, hot, first := a.calm.leave(attachments, begun)
	if len(first) > 0 {
		a.Log.Warn("something is taken away again and again, and is put back more slowly now; find out who takes it", "attachments", len(first), "first", first[0].Key().String(), "after", pause)
	}
	if len(hot) > 0 {
		a.putOff(ctx)
	}
	o := a.howToRepair()
	if hits.isRoutine() {
		o.Settle = patient
	}
	run, err := repair.Now(ctx, attachments, o)
	<-a.places
	wasHit := a.tell(hits, run.Reports, time.Since(begun))
	if err == nil {
		var inside []*repair.Report
		inside, err = a.lookInside(ctx, hits, run, attachments)
		wasHit = a.tell(hits, inside, time.Since(begun)) || wasHit
	}
	if !wasHit && !hits.isOwn() {
		a.patience.rest(time.Since(begun))
	}
	if err != nil && ctx.Err() == nil {
		a.Log.Error("what was hit can't be put back", "hit", hits.text(), "error", err)
	}
	if isAll {
		a.calm.forget(namesOf(n))
		a.said.forget(namesOf(n))
		a.left.forget(namesOf(n))
		repair.ForgetLeft(n)
	}
	if err == nil {
		a.work.Go(func() { a.findAll(ctx, attachments, run.Reports) })
	}
}

// lookInside puts back what hits have taken in containers whose network asks for that. When no event led to it, it also finds what others have
// changed. If too many such looks are under way, it is done later.
func (a *Agent) lookInside(ctx context.Context, hits hits, run *repair.Run, attachments []*node.Attachment) ([]*repair.Report, error) {
	isMeant := repair.MayEnter
	if hits.isOwn() {
		isMeant = func(*node.Attachment) bool { return true }
	}
	if !slices.ContainsFunc(attachments, isMeant) {
		return nil, nil
	}
	select {
	case a.inside <- struct{}{}:
		defer func() { <-a.inside }()
		return run.LookInside(ctx, isMeant)
	default:
		a.putOff(ctx)
		return nil, nil
	}
}

func (a *Agent) howToRepair() repair.Options {
	return repair.Options{Plugins: a.Plugins, Path: a.BinDirs}
}

// tell says what became of hits, and reports whether anything was missing.
func (a *Agent) tell(hits hits, reports []*repair.Report, took time.Duration) bool {
	counts, first := map[repair.Outcome]int{}, ""
	for _, r := range reports {
		counts[r.Outcome]++
		if r.Outcome == repair.Repaired {
			a.calm.note(r)
			first = cmp.Or(first, putBack(r))
		}
	}
	a.record.mended(hits, counts, took)
	if counts[repair.Repaired] > 0 {
		a.Log.Info("put back", "hit", hits.text(), "attachments", counts[repair.Repaired], "first", first, "in", took.Round(time.Millisecond))
	}
	return counts[repair.Repaired]+counts[repair.Wrong] > 0
}

// longDel is how long an attachment may look as if something can't be put back before that is said: some DELs take a while.
const longDel = 10 * time.Second

// findAll says once what can't be put back, and what is right again.
func (a *Agent) findAll(ctx context.Context, attachments []*node.Attachment, reports []*repair.Report) {
	var doubtful []*node.Attachment
	var wrong []*repair.Finding
	for i, r := range reports {
		switch f := finding(r); {
		case f != nil && !a.said.has(keyOf(r), f.Left):
			doubtful, wrong = append(doubtful, attachments[i]), append(wrong, f)
		case r.Outcome == repair.LeftAlone && len(r.Plugins) > 0:
			if f := r.Plugins[0]; a.left.add(keyOf(r), f.Summary) {
				a.Log.Info("something is missing, and is left alone", "attachment", keyOf(r), "plugin", f.Plugin, "missing", f.Summary, "remedy", f.Remedy)
			}
		case f == nil && r.Outcome != repair.Skipped && a.said.drop(keyOf(r)):
			a.Log.Info("it is right again", "attachment", keyOf(r))
		}
	}
	if len(doubtful) == 0 {
		return
	}
	select {
	case <-time.After(longDel):
	case <-ctx.Done():
		return
	}
	o := a.howToRepair()
	o.DryRun = true
	second, err := repair.Now(ctx, doubtful, o)
	if err == nil {
		_, err = second.LookInside(ctx, repair.MayEnter)
	}
	if err != nil {
		return
	}
	for i, r := range second.Reports {
		f := wrong[i]
		if _, gone := os.Stat(doubtful[i].Cache); gone == nil && r.Outcome == repair.Wrong && a.said.add(keyOf(r), f.Left) {
			a.Log.Warn("it can't be put back", "attachment", keyOf(r), "plugin", f.Plugin, "missing", f.Left, "remedy", f.Remedy)
		}
	}
}

// finding returns the first thing that a plugin can't put back, nil if there is none.
func finding(r *repair.Report) *repair.Finding {
	for i := range r.Plugins {
		if f := &r.Plugins[i]; r.Outcome == repair.Wrong && f.Left != "" {
			return f
		}
	}
	return nil
}

func keyOf(r *repair.Report) string {
	return plugin.Key{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}.String()
}

// putBack says what one attachment got back, "" if that was with another one.
func putBack(r *repair.Report) string {
	var list []string
	for _, f := range r.Plugins {
		list = append(list, f.PutBack...)
	}
	if len(list) == 0 {
		return ""
	}
	const most = 5
	if rest := len(list) - most; rest > 0 {
		list = append(list[:most], fmt.Sprintf("and %d more", rest))
	}
	return keyOf(r) + ": " + strings.Join(list, ", ")
}

// putOff has all looked at after a while, for attachments that somebody hits again and again.
func (a *Agent) putOff(ctx context.Context) {
	select {
	case a.later <- struct{}{}:
	default:
		return // that is to come
	}
	a.work.Go(func() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		<-a.later
		a.startMend(ctx, hits{{Kind: watch.Filter, What: again}})
	})
}
