package collect

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/node/runtimes"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Options say what to look at, and how plugins are called.
type Options struct {
	node.Options
	Network  string               // "" is all
	Valid    []types.GCAttachment // are in use
	AllValid bool                 // Valid has all that are in use and that no cache has a result of
	Runtimes []runtimes.Runtime   // are asked what they run

	// For Free. Plugins look into the cache directory, too.
	Exec func(cacheDir string) invoke.Exec
}

// settled is how old something must be, so that it is not that of an ADD under way.
const settled = time.Minute

// planner makes a report.
type planner struct {
	*Report
	options Options
	runs    map[string]string             // by container, which runtime says that it runs
	known   map[string]bool               // attachments that held something without a result at the first look, too
	unclear map[string][]*node.Attachment // by network, those of which it is not known whether they are in use
	halted  bool                          // nothing goes
}

// Plan says what would go of what a node has that was read just now with the same options.
func Plan(ctx context.Context, n *node.Node, o Options) *Report {
	p := &planner{
		Report:  &Report{Version: version, Time: time.Now().UTC(), Network: o.Network, Goes: []*Item{}, Stays: []Stay{}, Stops: []Stop{}},
		options: o, runs: map[string]string{}, known: withoutResult(n), unclear: map[string][]*node.Attachment{},
	}
	p.Host, _ = os.Hostname()
	if len(p.known) > 0 { // a DEL that has ended meanwhile holds nothing any more
		n = node.Read(ctx, o.Options)
	}
	p.node = n
	p.askRuntimes(ctx)
	p.Unread = slices.DeleteFunc(slices.Clone(n.Unread), func(u node.Unread) bool { return o.Network != "" && u.Network != "" && u.Network != o.Network })
	for _, a := range n.Attachments {
		if o.Network == "" || mayBeOf(a, o.Network) {
			p.judge(ctx, a)
		}
	}
	p.stop()
	p.spareLiving()
	for _, t := range n.Unowned {
		if o.Network == "" || o.Network == t.Network {
			p.judgeThing(t)
		}
	}
	return p.Report
}

// withoutResult returns the attachments that hold something and of which no cache has a result.
func withoutResult(n *node.Node) map[string]bool {
	set := map[string]bool{}
	for _, a := range n.Attachments {
		if a.Result == nil {
			set[a.Owner] = true
		}
	}
	return set
}

func (p *planner) askRuntimes(ctx context.Context) {
	p.Runtimes = runtimes.Ask(ctx, p.options.Runtimes)
	for _, answer := range p.Runtimes {
		for _, c := range answer.Containers {
			p.runs[c.ID] = answer.Runtime
		}
	}
}

// judge decides about an attachment.
func (p *planner) judge(ctx context.Context, a *node.Attachment) {
	w := p.node.Network(a.Network)
	switch {
	case p.isNamed(a):
		p.keep(a, "it is named as valid")
	case a.ContainerID != "" && p.runs[a.ContainerID] != "":
		p.keep(a, p.runs[a.ContainerID]+" says that it runs")
	case a.Result == nil:
		p.judgeWithoutResult(ctx, a)
	case a.State != node.Gone:
		p.keep(a, a.Why)
	case w != nil && w.List != nil && w.List.DisableGC:
		p.keep(a, "its network has disableGC")
	default:
		p.judgeGone(a)
	}
}

// isNamed reports whether an attachment is on the list of valid ones. One whose key was cut is known by its text.
func (p *planner) isNamed(a *node.Attachment) bool {
	return slices.ContainsFunc(p.options.Valid, func(v types.GCAttachment) bool {
		k := plugin.Key{Network: cmp.Or(a.Network, p.options.Network), ContainerID: v.ContainerID, IfName: v.IfName}
		return k.String() == a.Owner
	})
}

// judgeWithoutResult decides about an attachment that no cache has a result of.
func (p *planner) judgeWithoutResult(ctx context.Context, a *node.Attachment) {
	switch {
	case time.Since(newest(a)) < settled:
		p.keep(a, "it is not a minute old, and has no result: an ADD may be under way")
	case !p.known[a.Owner]:
		p.keep(a, "it has been made just now, and has no result: an ADD may be under way")
	case p.options.AllValid && a.State == node.Unknown && a.ContainerID != "" && !newest(a).IsZero(): // else it may be young
		p.take(a, "no cache has a result of it, and it is not on the list of what is valid")
	case areNotes(ctx, a):
		p.take(a, "others have removed what it had, and no cache has a result of it")
	default:
		p.unclear[a.Network] = append(p.unclear[a.Network], a)
	}
}

// areNotes reports whether nothing is left of what an attachment holds but notes. One that is in use has a link, or an address.
func areNotes(ctx context.Context, a *node.Attachment) bool {
	for _, t := range a.Held {
		noter, ok := t.Store.(plugin.Noter)
		if !ok {
			return false
		}
		if note, err := noter.IsNote(ctx, t.Held); err != nil || !note {
			return false
		}
	}
	return len(a.Held) > 0
}

// judgeGone decides about an attachment whose namespace is not at its path.
func (p *planner) judgeGone(a *node.Attachment) {
	it := p.item(a, a.Why)
	for _, t := range a.Held {
		if t.Held.Since.After(a.Result.Written) {
			p.keep(a, "its "+t.What+" is newer than its result")
			return
		}
	}
	why := it.inUse()
	if why == "" && time.Since(newest(a)) < settled {
		why = "it is not a minute old"
	}
	if why != "" {
		p.keep(a, why)
		return
	}
	p.Goes = append(p.Goes, it)
}

// newest returns when the attachment was given something last, as far as that is known.
func newest(a *node.Attachment) (last time.Time) {
	for _, r := range results(a) {
		if r.Written.After(last) {
			last = r.Written
		}
	}
	for _, t := range a.Held {
		if t.Held.Since.After(last) {
			last = t.Held.Since
		}
	}
	return last
}

// results returns all that caches have of an attachment.
func results(a *node.Attachment) []*node.Result {
	if a.Result == nil {
		return nil
	}
	return append([]*node.Result{a.Result}, a.Others...)
}

func (p *planner) item(a *node.Attachment, why string) *Item {
	it := &Item{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Owner: a.Owner, Why: why, Held: a.Held, Results: []Seen{}, state: a.State, results: results(a)}
	for _, r := range it.results {
		seen := Seen{Path: r.Path, Written: r.Written, Netns: r.NetNS}
		if now, err := look(r.Path); err == nil {
			seen.Inode = now.Inode
		}
		it.Results = append(it.Results, seen)
	}
	return it
}

func (p *planner) take(a *node.Attachment, why string) { p.Goes = append(p.Goes, p.item(a, why)) }

func (p *planner) keep(a *node.Attachment, why string) {
	p.Stays = append(p.Stays, Stay{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Owner: a.Owner, State: a.State, Why: why})
}

// judgeThing decides about something that is held for nobody who is known.
func (p *planner) judgeThing(t node.Thing) {
	why := ""
	l, isLease := t.Held.Own.(lease.Lease)
	_, isHash := t.Store.(reference.MasqueradeRules)
	switch {
	case t.Held.Key.ContainerID != "" || t.Held.MayBe != nil:
		why = "no cache has a result of its container"
	case isHash:
		why = "it does not say whose it is, and no cache has a result of such an attachment"
	case isLease && l.Owner.ContainerID == "" && time.Since(t.Held.Since) < settled:
		why = "its file is empty or torn, and not a minute old: an ADD may be under way"
	case p.isStopped(t.Network):
		why = Stopped
	}
	if why != "" {
		p.Stays = append(p.Stays, Stay{Network: t.Network, ContainerID: t.Held.Key.ContainerID, What: t.What, Why: why})
		return
	}
	it := &Item{Network: t.Network, Why: "nobody holds it", Held: []node.Thing{t}, Results: []Seen{}}
	if isLease {
		it.Why = "its file is empty or torn"
	}
	p.Goes = append(p.Goes, it)
}

// mayBeOf reports whether an attachment can be one of a network. Of a long key that was cut its network may not be known.
func mayBeOf(a *node.Attachment, network string) bool {
	head, _, _ := strings.Cut(a.Owner, "~")
	return a.Network == network || a.Network == "" && strings.HasPrefix(network+"/", head)
}
