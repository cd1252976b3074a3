package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// How much a burst keeps. Of more than mostHits it says that much was hit, which means all.
const (
	mostHits   = 256
	mostPlaces = 4096 // of links, most of which may turn out to be gone
	mostInside = 16   // of one container, which can make any number; the rest is said of the namespace as a whole
)

// rest stands for all links of a namespace that are too many to name.
const rest = -1

// burst is what has come in some moments.
type burst struct {
	first, last time.Time
	filter      map[string]Hit // by what they are about
	losses      map[linkID]*loss
	gone        map[linkID]Hit // links that others were made on
	ended       map[int]bool   // numbers of namespaces
	inside      map[int]int    // how much came of each namespace
	much        bool           // more than is kept
}

// loss is what one link has lost.
type loss struct {
	before, after string // the name of the link
	more          bool   // than is said
	by            string
	onlyDown      bool
	master        int32 // the bridge that it left, if it lost nothing else
}

func newBurst() *burst {
	return &burst{filter: map[string]Hit{}, losses: map[linkID]*loss{}, gone: map[linkID]Hit{}, ended: map[int]bool{}, inside: map[int]int{}}
}

func (b *burst) touch() {
	b.last = time.Now()
	if b.first.IsZero() {
		b.first = b.last
	}
}

// addFilter adds a hit of any attachment.
func (b *burst) addFilter(about string, h Hit) {
	if _, known := b.filter[about]; !known && len(b.filter) >= mostHits {
		b.much = true
	} else {
		b.filter[about] = h
	}
	b.touch()
}

// addEvent adds what was told of a link or a namespace, and reports whether that may be a hit.
func (b *burst) addEvent(e event, by string) bool {
	switch e.change {
	case forwarding:
		b.addFilter(e.what, Hit{Kind: Filter, What: "forwarding of " + e.what + " was turned off"})
		return true
	case ended:
		maps.DeleteFunc(b.losses, func(p linkID, _ *loss) bool { return p.nsid == e.nsid })
		maps.DeleteFunc(b.gone, func(p linkID, _ Hit) bool { return p.nsid == e.nsid })
		if len(b.ended) < mostHits { // one is enough to have all looked for
			b.ended[e.nsid] = true
		}
	case gone:
		delete(b.losses, e.linkID)
		delete(b.losses, linkID{nsid: e.nsid}) // the rules of an attachment go with its link
		if !e.carries {
			return false
		}
		if b.isFull(e.nsid) { // of VRFs
			e.change = lost
			b.addLoss(e, by)
			break
		}
		if len(b.gone) >= mostPlaces {
			b.much = true
			break
		}
		b.gone[e.linkID] = hitOf(e.linkID, e.name, e.kind+" ", " was deleted", by)
	default:
		b.addLoss(e, by)
	}
	b.touch()
	return true
}

// isFull counts what is kept of a container's namespace, and reports whether that is enough.
func (b *burst) isFull(nsid int) bool {
	b.inside[nsid]++
	return nsid != hostNumber && b.inside[nsid] > mostInside
}

func (b *burst) addLoss(e event, by string) {
	if b.losses[e.linkID] == nil && b.isFull(e.nsid) {
		e = event{change: lost, linkID: linkID{e.nsid, rest}, what: "much"}
	}
	l := b.losses[e.linkID]
	if l == nil && len(b.losses) >= mostPlaces {
		b.much = true
		return
	}
	if l != nil {
		l.more = true
		l.onlyDown = l.onlyDown && e.change == down
		l.master = 0
		if l.by == "" {
			l.by = by
		}
		return
	}
	l = &loss{before: e.what + " of ", after: " was deleted", by: by, onlyDown: e.change == down, master: e.master}
	switch e.change {
	case down:
		l.before, l.after = "", " was set down"
	case unplugged:
		l.before, l.after = "", " was taken out of its bridge"
	}
	b.losses[e.linkID] = l
}

// hitOf makes a hit of what happened to a link.
func hitOf(p linkID, name, before, after, by string) Hit {
	if p.nsid == hostNumber {
		return Hit{Kind: Link, Link: name, What: before + harmless(name) + after, By: by}
	}
	where := fmt.Sprintf("namespace %d", p.nsid)
	if p.index > 0 {
		where = harmless(name) + " in " + where
	}
	return Hit{Kind: Inside, NSID: p.nsid, What: before + where + after} // by a process with a number of the container's own
}

// hits returns what is left of the burst when links that are gone have been left out, each once, and one that stands for all if they are many.
func (b *burst) hits(l *links) (list []Hit) {
	list = slices.SortedFunc(maps.Values(b.filter), func(x, y Hit) int { return strings.Compare(x.What, y.What) })
	list = append(slices.Compact(list), slices.Collect(maps.Values(b.gone))...)
	for p, loss := range b.losses {
		if loss.master != 0 && b.isGone(linkID{p.nsid, loss.master}) {
			continue
		}
		if b.much || len(list) > mostHits {
			break
		}
		link, there := l.ask(p)
		if !there || loss.onlyDown && link.up {
			continue
		}
		list = append(list, loss.hit(p, link.name))
	}
	if b.much || len(list) > mostHits {
		kind := Any
		if slices.ContainsFunc(list, func(h Hit) bool { return h.Kind == Filter }) {
			kind = Filter
		}
		list = []Hit{{Kind: kind, What: "much was hit, such as " + b.example()}}
	}
	for id := range b.ended {
		what := fmt.Sprintf("namespace %d has ended", id)
		if id == hostNumber {
			what = "namespaces may have ended"
		}
		list = append(list, Hit{Kind: Ended, NSID: id, What: what})
	}
	return list
}

func (b *burst) isGone(p linkID) bool {
	_, gone := b.gone[p]
	return gone
}

func (l *loss) hit(p linkID, name string) Hit {
	after := l.after
	if l.more {
		after += ", and more"
	}
	if h := hitOf(p, name, l.before, after, l.by); name != "" || p.nsid != hostNumber {
		return h
	}
	return Hit{Kind: Filter, What: fmt.Sprintf("%slink %d%s", l.before, p.index, after), By: l.by} // whose it is can't be found out
}

// example returns one of many hits.
func (b *burst) example() string {
	for _, h := range b.filter {
		return h.What
	}
	for _, h := range b.gone {
		return h.What
	}
	return "links that lost something"
}
