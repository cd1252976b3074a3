package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/agent/watch"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/repair"
)

// everything is why all is looked at though nothing is known to be hit.
const everything = "the look at everything"

// mend puts back what hits have taken.
func (a *Agent) mend(ctx context.Context, hits []watch.Hit) {
	begun := time.Now()
	n := node.Read(ctx, a.Options.Options)
	attachments, isAll := hit(n, hits)
	attachments, hot := a.calm.leave(attachments, begun)
	if len(hot) > 0 {
		a.putOff(ctx, hot)
	}
	reports, err := repair.Attachments(ctx, attachments, repair.Options{Plugins: a.Plugins, Path: a.BinDirs})
	if err != nil && ctx.Err() == nil {
		a.Log.Error("what was hit can't be put back", "hit", text(hits), "error", err)
	}
	a.tell(hits, reports, time.Since(begun))
	if isAll {
		a.calm.forget(n)
		a.said.forget(n)
	}
}

// hit returns the attachments that may have lost something, and whether these are all.
func hit(n *node.Node, hits []watch.Hit) (list []*node.Attachment, isAll bool) {
	links, namespaces := map[string]bool{}, map[*node.Namespace]bool{}
	for _, h := range hits {
		switch h.Kind {
		case watch.Filter:
			return n.Attachments, true
		case watch.Link:
			links[h.Link] = true
		case watch.Inside:
			if s := n.NamespaceNumbered(h.NSID); s != nil {
				namespaces[s] = true
			}
		}
	}
	for _, a := range n.Attachments {
		if a.Namespace != nil && namespaces[a.Namespace] || uses(a, links) {
			list = append(list, a)
		}
	}
	return list, false
}

// uses reports whether an attachment has one of the host's links.
func uses(a *node.Attachment, links map[string]bool) bool {
	if a.HostEnd != nil && links[a.HostEnd.Name] || links[a.Master] {
		return true
	}
	if a.Result == nil || a.Result.Result == nil {
		return false
	}
	for _, i := range a.Result.Result.Interfaces {
		if i.Sandbox == "" && links[i.Name] {
			return true
		}
	}
	return false
}

// tell says what became of hits.
func (a *Agent) tell(hits []watch.Hit, reports []*repair.Report, took time.Duration) {
	counts, first := map[repair.Outcome]int{}, ""
	for _, r := range reports {
		counts[r.Outcome]++
		switch r.Outcome {
		case repair.Repaired:
			a.calm.note(r)
			if first == "" {
				first = putBack(r)
			}
		case repair.Wrong:
			a.find(r)
			continue
		}
		if r.Outcome != repair.Skipped && a.said.drop(keyOf(r)) {
			a.Log.Info("it is right again", "attachment", keyOf(r))
		}
	}
	a.record.mended(hits, counts, took)
	if counts[repair.Repaired] > 0 {
		a.Log.Info("put back", "hit", text(hits), "attachments", counts[repair.Repaired], "first", first, "in", took.Round(time.Millisecond))
	}
}

// find says once what can't be put back.
func (a *Agent) find(r *repair.Report) {
	for _, f := range r.Plugins {
		if f.Left == "" {
			continue
		}
		if a.said.add(keyOf(r), f.Left) {
			a.Log.Warn("it can't be put back", "attachment", keyOf(r), "plugin", f.Plugin, "missing", f.Left, "remedy", f.Remedy)
		}
		return
	}
}

func keyOf(r *repair.Report) string {
	return plugin.Key{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}.String()
}

// putBack says what one attachment got back.
func putBack(r *repair.Report) string {
	var list []string
	for _, f := range r.Plugins {
		list = append(list, f.PutBack...)
	}
	const most = 5
	if rest := len(list) - most; rest > 0 {
		list = append(list[:most], fmt.Sprintf("and %d more", rest))
	}
	return keyOf(r) + ": " + strings.Join(list, ", ")
}

// text says what was hit, and by whom.
func text(hits []watch.Hit) string {
	var list []string
	for _, h := range hits {
		what := h.What
		if h.By != "" {
			what += " by " + h.By
		}
		if !slices.Contains(list, what) {
			list = append(list, what)
		}
	}
	const most = 5
	if rest := len(list) - most; rest > 0 {
		list = append(list[:most], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(list, "; ")
}

// putOff has all looked at after a while, for attachments that somebody hits again and again.
func (a *Agent) putOff(ctx context.Context, hot []*node.Attachment) {
	select {
	case a.later <- struct{}{}:
	default:
		return // that is to come
	}
	a.Log.Warn("something is taken away again and again, and is put back more slowly now; find out who takes it", "attachments", len(hot), "first", hot[0].Key().String(), "after", pause)
	a.work.Go(func() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		<-a.later
		a.mend(ctx, []watch.Hit{{Kind: watch.Filter, What: everything}})
	})
}
