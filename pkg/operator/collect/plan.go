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

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Options say what to look at, and how plugins are called.
type Options struct {
	node.Options
	Network  string               // "" is all
	Valid    []types.GCAttachment // are in use
	AllValid bool                 // Valid has all that are in use and that no cache has a result of

	// For Free. Plugins look into the cache directory, too.
	Exec func(cacheDir string) invoke.Exec
}

// planner makes a report.
type planner struct {
	*Report
	options Options
	known   map[string]bool // attachments that held something without a result at the first look, too
	halted  bool            // nothing goes
}

// Plan says what would go of what a node has that was read just now with the same options.
func Plan(ctx context.Context, n *node.Node, o Options) *Report {
	p := &planner{
		Report:  &Report{Version: version, Time: time.Now().UTC(), Network: o.Network, Goes: []*Item{}, Stays: []Stay{}, Stops: []Stop{}},
		options: o, known: withoutResult(n),
	}
	p.Host, _ = os.Hostname()
	if len(p.known) > 0 { // a DEL that has ended meanwhile holds nothing any more
		n = node.Read(ctx, o.Options)
	}
	p.node, p.Runtimes = n, n.Runtimes
	p.Unread = slices.DeleteFunc(slices.Clone(n.Unread), func(u node.Unread) bool { return o.Network != "" && u.Network != "" && u.Network != o.Network })
	for _, a := range n.Attachments {
		if o.Network == "" || mayBeOf(a, o.Network) {
			p.judge(ctx, a)
		}
	}
	p.stop()
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

// judge decides about an attachment. Whether it is gone the node says.
func (p *planner) judge(ctx context.Context, a *node.Attachment) {
	w := p.node.Network(a.Network)
	runs := slices.ContainsFunc(p.Runtimes, func(r containers.Answer) bool { return r.Runs(a.ContainerID) })
	isUnknown := a.State == node.Unknown && a.Result == nil && p.known[a.Owner] && !a.IsYoung() && !runs
	switch {
	case p.isNamed(a):
		p.addStaying(a, "it is named as valid")
	case isUnknown && p.options.AllValid && a.ContainerID != "" && a.Since != nil: // else it may be young
		p.addGoing(a, "no cache has a result of it, and it is not on the list of what is valid")
	case isUnknown && areNotes(ctx, a):
		p.addGoing(a, "others have removed what it had, and no cache has a result of it")
	case !a.State.IsOver():
		p.addStaying(a, a.Why)
	case w != nil && w.List != nil && w.List.DisableGC:
		p.addStaying(a, "its network has disableGC")
	case a.IsYoung():
		p.addStaying(a, a.Why+", but it is not a minute old")
	default:
		p.addGoing(a, a.Why)
	}
}

// isNamed reports whether an attachment is on the list of valid ones. One whose key was cut is known by its text.
func (p *planner) isNamed(a *node.Attachment) bool {
	return slices.ContainsFunc(p.options.Valid, func(v types.GCAttachment) bool {
		k := plugin.Key{Network: cmp.Or(a.Network, p.options.Network), ContainerID: v.ContainerID, IfName: v.IfName}
		return k.String() == a.Owner
	})
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

func (p *planner) item(a *node.Attachment, why string) *Item {
	it := &Item{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Owner: a.Owner, Why: why, Held: a.Held, Results: []Seen{}, state: a.State, results: a.Results()}
	for _, r := range it.results {
		seen := Seen{Path: r.Path, Written: r.Written, Netns: r.NetNS}
		if now, err := look(r.Path); err == nil {
			seen.Inode = now.Inode
		}
		it.Results = append(it.Results, seen)
	}
	return it
}

func (p *planner) addGoing(a *node.Attachment, why string) { p.Goes = append(p.Goes, p.item(a, why)) }

func (p *planner) addStaying(a *node.Attachment, why string) {
	p.Stays = append(p.Stays, Stay{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName, Owner: a.Owner, State: a.State, Why: why})
}

// judgeThing decides about something that is held for nobody who is known. Most of these have no age, so that an ADD of a container that a list of what
// is valid does not have yet may be under way: only an empty list says that they are nobody's.
func (p *planner) judgeThing(t node.Holding) {
	why := ""
	l, isLease := t.Held.Own.(lease.Lease)
	_, isHash := t.Store.(reference.MasqueradeRules)
	isContainers := t.Held.Key.ContainerID != "" || t.Held.MayBe != nil
	isInUse := !p.options.AllValid || len(p.options.Valid) > 0 || p.runs(t) || node.IsYoung(t.Held.Since)
	switch {
	case p.halted:
		why = Stopped
	case isContainers && isInUse:
		why = "no cache has a result of its container; it goes if --valid-from says that nothing is in use"
	case isHash && isInUse:
		why = "it does not say whose it is, and no cache has a result of such an attachment; it goes if --valid-from says that nothing is in use"
	case isLease && l.Owner.ContainerID == "" && node.IsYoung(t.Held.Since):
		why = "its file is empty or torn, and not a minute old: an ADD may be under way"
	}
	if why != "" {
		p.Stays = append(p.Stays, Stay{Network: t.Network, ContainerID: t.Held.Key.ContainerID, What: t.What, Why: why})
		return
	}
	it := &Item{Network: t.Network, Why: "nobody holds it", Held: []node.Holding{t}, Results: []Seen{}}
	switch {
	case isLease:
		it.Why = "its file is empty or torn"
	case isContainers || isHash:
		it.Why = "no cache has a result of its container, and nothing is said to be in use"
	}
	p.Goes = append(p.Goes, it)
}

// runs reports whether a runtime says that a container runs that a thing may be held for.
func (p *planner) runs(t node.Holding) bool {
	return slices.ContainsFunc(p.Runtimes, func(r containers.Answer) bool {
		return r.Runs(t.Held.Key.ContainerID) || slices.ContainsFunc(t.Held.MayBe, r.Runs)
	})
}

// mayBeOf reports whether an attachment can be one of a network. Of a long key that was cut its network may not be known.
func mayBeOf(a *node.Attachment, network string) bool {
	head, _, _ := strings.Cut(a.Owner, "~")
	return a.Network == network || a.Network == "" && strings.HasPrefix(network+"/", head)
}
