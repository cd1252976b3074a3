package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/presence"
)

// judge finds the attachment's namespace and host end, and has it said whether it is in use. Of several results that caches have it is in use if
// it is by one of them.
func (n *Node) judge(a *Attachment) {
	at, _ := n.namespaceAt(a.Netns)
	a.HostEnd = n.hostEnd(a, at)
	verdict := n.presence.Of(n.claim(a, a.Result))
	for _, r := range a.Others {
		if v := n.presence.Of(n.claim(a, r)); verdict.State.IsOver() && !v.State.IsOver() {
			verdict = v
			verdict.Why += ", by " + r.Path
		}
	}
	if a.HostEnd != nil {
		a.Master, verdict.Namespace = a.HostEnd.Master, n.behind(a.HostEnd)
	}
	n.settle(a, verdict)
}

func (n *Node) settle(a *Attachment, v presence.Verdict) {
	a.State, a.Why, a.Namespace, a.isProven = v.State, v.Why, v.Namespace, v.IsProven
}

// claim returns what is known of an attachment by one of its results, which may be nil.
func (n *Node) claim(a *Attachment, r *Result) presence.Claim {
	c := presence.Claim{Key: a.Key()}
	if a.HostEnd != nil {
		c.HostEnd = a.HostEnd.Name
		if at, _ := n.namespaceAt(a.Netns); at != nil && at == n.behind(a.HostEnd) {
			c.At = a.Netns
		}
	}
	lent := a.lent()
	if r != nil && !lent.After(r.Written) { // else it is that of an earlier ADD
		c.HasResult, c.Netns, c.MAC = true, r.NetNS, macOf(r)
	}
	if a.note.CountsFor(lent) && (r == nil || a.note.CountsFor(r.Written)) {
		c.Note = a.note
	}
	return c
}

// behind returns the namespace to which a host end leads, nil if it is not known.
func (n *Node) behind(l *Link) *Namespace { return n.ids[l.Link.Attrs().NetNsID] }

// lent returns when the attachment was lent an address last, as far as that is known. Leases that daemons renew say nothing of that.
func (a *Attachment) lent() (last time.Time) {
	for _, t := range a.Held {
		if _, ok := t.Held.Own.(lease.Lease); ok && t.Held.Since.After(last) {
			last = t.Held.Since
		}
	}
	return last
}

// newest returns when the attachment was given something last, as far as that is known.
func (a *Attachment) newest() (last time.Time) {
	for _, r := range a.Results() {
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

// IsYoung reports whether the attachment was given something in the last minute, so that an ADD or a DEL of it may be under way. A time that is
// yet to come is from before the clock was set.
func (a *Attachment) IsYoung() bool { return IsYoung(a.newest()) }

// IsYoung reports whether something was given in the last minute.
func IsYoung(given time.Time) bool {
	age := time.Since(given)
	return age > -settled && age < settled
}

// settled is how old something must be, so that it is not that of an ADD under way.
const settled = time.Minute

// Results returns all that caches have of the attachment, the one that counts first.
func (a *Attachment) Results() []*Result {
	if a.Result == nil {
		return nil
	}
	return append([]*Result{a.Result}, a.Others...)
}

// spare looks for what speaks for attachments that seem to be gone: an address of theirs in a namespace that lives, unless ADD noted which
// namespace it was, and a runtime that runs them. While a runtime does not answer, what it may run counts as running.
func (n *Node) spare(ctx context.Context, all []containers.Runtime) {
	doubtful := slices.DeleteFunc(slices.Clone(n.Attachments), func(a *Attachment) bool { return a.State == Alive })
	if len(doubtful) == 0 {
		return
	}
	n.spareSeen(slices.DeleteFunc(slices.Clone(doubtful), func(a *Attachment) bool { return a.isProven || !a.State.IsOver() }))
	n.Runtimes = containers.Ask(ctx, all)
	for _, r := range n.Runtimes {
		for _, a := range doubtful {
			switch {
			case r.Runs(a.ContainerID):
				n.settle(a, a.verdict().Spare(fmt.Sprintf("%s says that it runs; %s", r.Runtime, a.Why)))
			case r.Error != "" && a.State.IsOver():
				n.settle(a, a.verdict().Spare(fmt.Sprintf("%s does not answer, and may run it; %s", r.Runtime, a.Why)))
			}
		}
	}
}

func (a *Attachment) verdict() presence.Verdict {
	return presence.Verdict{State: a.State, Why: a.Why, Namespace: a.Namespace, IsProven: a.isProven}
}

// spareSeen spares what has an address or a MAC address that is seen in a namespace that lives. Containers can write there what they like, so
// that it spares, and nothing else follows from it.
func (n *Node) spareSeen(over []*Attachment) {
	if len(over) == 0 {
		return
	}
	wanted := map[netip.Addr]bool{}
	for _, a := range over {
		for _, p := range a.Addresses {
			wanted[p.Addr()] = true
		}
	}
	unexplained, err := n.unexplained(func(a netip.Addr) bool { return wanted[a] })
	for _, a := range over {
		why := seenIn(a, unexplained)
		if err != nil {
			why = err.Error()
		}
		if why != "" {
			n.settle(a, a.verdict().Spare(why))
		}
	}
}

// unexplainedInterface is an interface in a namespace that lives, and that no attachment explains.
type unexplainedInterface struct {
	Interface
	in *Namespace
}

// seenIn says where an address of the attachment is seen. Those of lo, which are in each namespace, say nothing.
func seenIn(a *Attachment, unexplained []unexplainedInterface) string {
	for _, s := range unexplained {
		if a.MAC != "" && strings.EqualFold(a.MAC, s.MAC) {
			return fmt.Sprintf("its MAC address %s is in network namespace %s", a.MAC, s.in.Path())
		}
		for _, own := range a.Addresses {
			if slices.ContainsFunc(s.Addresses, func(p netip.Prefix) bool { return p.Addr() == own.Addr() && !own.Addr().IsLoopback() }) {
				return fmt.Sprintf("its address %s is in network namespace %s", own.Addr(), s.in.Path())
			}
		}
	}
	return ""
}

// mostLooks is how often a namespace is looked for again while processes end and move.
const mostLooks = 10

// unexplained looks for wanted addresses in all namespaces, those of other mount namespaces too. One that is there and can't be looked into may have
// anything.
func (n *Node) unexplained(isWanted func(netip.Addr) bool) (list []unexplainedInterface, err error) {
	explained := map[uint64]map[string]bool{}
	for _, a := range n.Attachments {
		if a.State == Alive && a.Namespace != nil {
			if explained[a.Namespace.Inode] == nil {
				explained[a.Namespace.Inode] = map[string]bool{}
			}
			explained[a.Namespace.Inode][a.IfName] = true
		}
	}
	namespaces, err := n.presence.Everywhere()
	if err != nil {
		return nil, fmt.Errorf("not all network namespaces can be looked at, and one may be its: %w", err)
	}
	for round := 0; ; round++ {
		var missed []*presence.Namespace
		for _, s := range namespaces {
			interfaces, failed := s.Interfaces(isWanted)
			if failed != nil {
				missed = append(missed, s)
				err = fmt.Errorf("network namespace %s can't be looked into, and may be its: %w", s.Path(), failed)
			}
			for _, i := range interfaces {
				if !explained[s.Inode][i.Name] && !i.Elsewhere { // a node in a container has networks of its own
					list = append(list, unexplainedInterface{i, s})
				}
			}
		}
		switch {
		case len(missed) == 0:
			return list, nil
		case round == mostLooks:
			return nil, err
		}
		if namespaces, err = n.presence.Again(missed); err != nil {
			return nil, err
		}
	}
}
