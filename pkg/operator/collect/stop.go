package collect

import (
	"fmt"
	"path/filepath"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Stopped is why something stays that would go if it were known what is held.
const Stopped = "it is not known what is in use"

// stop takes everything back that would go if not all can be listed that is held, or that caches have: an address would be free to which a rule
// leads. An attachment that is not known stops nothing else.
func (p *planner) stop() {
	for _, u := range p.node.Unread {
		if u.IsQuestion() || filepath.Base(u.What) == "results" {
			p.halted = true
			p.Stops = append(p.Stops, Stop{Attachments: []string{}, Why: fmt.Sprintf("nothing goes: it is not known what is in use: %s can't be read: %s", u.What, u.Why),
				Remedy: "make it readable, and repeat this"})
		}
	}
	if !p.halted {
		return
	}
	for _, it := range p.Goes {
		p.Stays = append(p.Stays, Stay{Network: it.Network, ContainerID: it.ContainerID, IfName: it.IfName, Owner: it.Owner, State: it.state, Why: Stopped})
	}
	p.Goes = []*Item{}
}

// Remedy says what to do about an attachment of which it is not known whether it is in use, "" for all others.
func (s Stay) Remedy() string {
	if s.State != node.Unknown || s.ContainerID == "" || s.Network == "" {
		return ""
	}
	return fmt.Sprintf("if it is gone: `cnictl del %s --id %s --ifname %s`; if its runtime keeps results elsewhere, name that directory with --cache-dir",
		s.Network, s.ContainerID, s.IfName)
}
