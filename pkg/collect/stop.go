package collect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/node"
)

// Stopped is why something stays that would go if nothing stopped its network.
const Stopped = "nothing of its network goes"

// stop takes everything back that would go of networks for which something is held that no cache has a result of: the cache may be another
// one than the runtime's, or an old copy. Where not all can be listed that is held, nothing goes at all.
func (p *planner) stop() {
	for _, u := range p.node.Unread {
		if u.IsQuestion() || filepath.Base(u.What) == "results" {
			p.halted = true
			p.Stops = append(p.Stops, Stop{Attachments: []string{}, Why: fmt.Sprintf("nothing goes: it is not known what is in use: %s can't be read: %s", u.What, u.Why),
				Remedy: "make it readable, and repeat this"})
		}
	}
	for _, network := range slices.Sorted(maps.Keys(p.unclear)) {
		list := p.unclear[network]
		s := Stop{Network: network}
		for _, a := range list {
			s.Attachments = append(s.Attachments, a.Owner)
			p.keep(a, a.Why)
		}
		s.Why, s.Remedy = p.explain(network, list)
		p.Stops = append(p.Stops, s)
	}
	p.Goes = slices.DeleteFunc(p.Goes, func(it *Item) bool {
		stopped := p.isStopped(it.Network)
		if stopped {
			p.Stays = append(p.Stays, it.stay(Stopped))
		}
		return stopped
	})
}

func (p *planner) isStopped(network string) bool {
	for _, list := range p.unclear {
		if slices.ContainsFunc(list, func(a *node.Attachment) bool { return mayBeOf(a, network) }) {
			return true
		}
	}
	return p.halted
}

func (it *Item) stay(why string) Stay {
	return Stay{Network: it.Network, ContainerID: it.ContainerID, IfName: it.IfName, Owner: it.Owner, State: it.state, Why: why}
}

// explain says why the attachments stop it, and what can be done.
func (p *planner) explain(network string, list []*node.Attachment) (why, remedy string) {
	var texts []string
	for _, a := range list {
		texts = append(texts, fmt.Sprintf("%s (%s)", nameOf(a.ContainerID, a.IfName, a.Owner), strings.Join(p.evidence(a), ", ")))
	}
	const most = 10
	if count := len(texts); count > most {
		texts = append(texts[:most], fmt.Sprintf("and %d more", count-most))
	}
	first := list[0]
	id, ifName := cmp.Or(first.ContainerID, "CONTAINER-ID"), cmp.Or(first.IfName, "INTERFACE")
	why = fmt.Sprintf("nothing of network %s goes: no cache has a result of %d attachments for which something is held, so that they may be in use: %s",
		cmp.Or(network, "(not known)"), len(list), strings.Join(texts, "; "))
	remedy = fmt.Sprintf("if the runtime keeps its results elsewhere, name that directory with --cache-dir; name what is in use with --valid %s/%s, "+
		"or all of it with --valid-from FILE; remove what is gone with `cnictl del %s --id %s --ifname %s`", id, ifName, cmp.Or(network, "NETWORK"), id, ifName)
	return why, remedy
}

// evidence says what is known of an attachment without a result.
func (p *planner) evidence(a *node.Attachment) (texts []string) {
	if a.State == node.Alive {
		texts = append(texts, a.Why)
	}
	for _, u := range p.node.Unread {
		if a.ContainerID != "" && strings.HasSuffix(u.What, node.PathOf("/", a.Key())) {
			texts = append(texts, u.Why)
		}
	}
	const most = 3
	for i, t := range a.Held {
		text := t.What
		if t.Since != nil {
			text += " since " + t.Since.Format(time.RFC3339)
		}
		if i == most {
			return append(texts, fmt.Sprintf("and %d things more", len(a.Held)-most))
		}
		texts = append(texts, text)
	}
	return texts
}

// stranger is an interface in a namespace that lives, and that no attachment explains.
type stranger struct {
	node.Interface
	in *node.Namespace
}

// spareLiving keeps what would go and has an address or a MAC address that is seen in a namespace that lives. Containers can write there
// what they like, so that it spares, and nothing else follows from it.
func (p *planner) spareLiving() {
	if len(p.Goes) == 0 {
		return
	}
	strangers, err := p.strangers()
	p.Goes = slices.DeleteFunc(p.Goes, func(it *Item) bool {
		why := ""
		if err != nil {
			why = err.Error()
		} else if a := p.node.Attachment(it.key()); a != nil {
			why = seenIn(a, strangers)
		}
		if why != "" {
			p.Stays = append(p.Stays, it.stay(why))
		}
		return why != ""
	})
}

// seenIn says where an address of the attachment is seen. Those of lo, which are in each namespace, say nothing.
func seenIn(a *node.Attachment, strangers []stranger) string {
	for _, s := range strangers {
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

// strangers looks into all namespaces. One that is there and can't be looked into may have anything.
func (p *planner) strangers() (list []stranger, err error) {
	explained := map[*node.Namespace]map[string]bool{}
	for _, a := range p.node.Attachments {
		if a.State == node.Alive && a.Namespace != nil {
			if explained[a.Namespace] == nil {
				explained[a.Namespace] = map[string]bool{}
			}
			explained[a.Namespace][a.IfName] = true
		}
	}
	for _, s := range p.node.Namespaces {
		interfaces, err := s.Interfaces()
		if err != nil { // its process may just have ended
			interfaces, err = s.Interfaces()
		}
		if err != nil {
			if ns, gone := netns.Open(s.Path()); gone == nil {
				_ = ns.Close()
				return nil, fmt.Errorf("network namespace %s can't be looked into, and may be its: %w", s.Path(), err)
			}
			continue // it has ended meanwhile
		}
		for _, i := range interfaces {
			if !explained[s][i.Name] && !i.Elsewhere { // a node in a container has networks of its own
				list = append(list, stranger{i, s})
			}
		}
	}
	return list, nil
}
