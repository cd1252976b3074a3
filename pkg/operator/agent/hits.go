package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

// hits are what must be mended.
type hits []watch.Hit

// mostHits is how many may wait; with more of them all is looked at.
const mostHits = 1000

// with adds more. Of one namespace one is enough, as its processes make any number.
func (h hits) with(more hits) hits {
	for _, hit := range more {
		isKnown := func(other watch.Hit) bool {
			return other == hit || hit.Kind == watch.Inside && other.Kind == watch.Inside && other.NSID == hit.NSID
		}
		if !slices.ContainsFunc(h, isKnown) {
			h = append(h, hit)
		}
	}
	switch {
	case len(h) <= mostHits:
		return h
	case h.isUrgent():
		return hits{{Kind: watch.Filter, What: "much"}}
	}
	return hits{{Kind: watch.Any, What: "much"}}
}

// isUrgent reports whether all attachments may have lost something, by no container's doing.
func (h hits) isUrgent() bool {
	return slices.ContainsFunc(h, func(hit watch.Hit) bool { return hit.Kind == watch.Filter })
}

// isOwn reports whether no event led to them: that nothing is found then says nothing about events.
func (h hits) isOwn() bool {
	return len(h) == 1 && (h[0].What == start || h.isRoutine())
}

// isRoutine reports whether they are a look at everything that is made now and then.
func (h hits) isRoutine() bool { return len(h) == 1 && h[0].What == everything }

// attachments returns those that may have lost something that is put back, and whether these are all.
func (h hits) attachments(n *node.Node) (list []*node.Attachment, isAll bool) {
	if slices.ContainsFunc(h, func(hit watch.Hit) bool { return hit.Kind == watch.Filter || hit.Kind == watch.Any }) {
		return n.Attachments, true
	}
	links, namespaces := map[string]bool{}, map[*node.Namespace]bool{}
	for _, hit := range h {
		switch hit.Kind {
		case watch.Link:
			links[hit.Link] = true
			bridge, _, _ := strings.Cut(hit.Link, ".") // whose link to a VLAN it may be
			links[bridge] = true
		case watch.Inside:
			namespaces[n.NamespaceNumbered(hit.NSID)] = true
		}
	}
	for _, a := range n.Attachments {
		if uses(a, links) || a.Namespace != nil && namespaces[a.Namespace] && repair.MayEnter(a) {
			list = append(list, a)
		}
	}
	return list, false
}

// uses reports whether an attachment has one of the host's links.
func uses(a *node.Attachment, links map[string]bool) bool {
	if a.HostEnd != nil && links[a.HostEnd.Name] || a.Master != "" && links[a.Master] {
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

// text says what was hit, and by whom.
func (h hits) text() string {
	var list []string
	for _, hit := range h {
		what := hit.What
		if hit.By != "" {
			what += " by " + hit.By
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

// patience has what may be nothing wait, if the last look was for nothing: a tenth of the time at most goes into such looks.
type patience struct {
	mu    sync.Mutex
	until time.Time
}

// rest begins a pause after a look that was for nothing.
func (p *patience) rest(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(9 * took)
}

func (p *patience) end() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}
