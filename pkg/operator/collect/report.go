// Package collect frees what attachments hold that are gone: a Report says what would go and why, and Free removes one of it.
//
// Never goes what may be in use, by pkg/presence. A plan is made from what is held first and from who is valid then, and what is young is
// spared. A thing that is not known stays, and stops nothing else. Right before something is removed it is looked at again.
package collect

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Report says what would go and why, what stays and why, and what stops it.
type Report struct {
	Version  int                 `json:"version"` // of this form
	Time     time.Time           `json:"time"`
	Host     string              `json:"host"`
	Network  string              `json:"network,omitempty"` // "" is all
	Goes     []*Item             `json:"goes"`
	Stays    []Stay              `json:"stays"`
	Stops    []Stop              `json:"stops"`
	Runtimes []containers.Answer `json:"runtimes"` // those that were asked
	Unread   []node.Unread       `json:"unread"`

	node *node.Node
}

// version is that of the form of reports.
const version = 1

// Item is an attachment that goes, or something that nobody holds.
type Item struct {
	Network     string         `json:"network,omitempty"`
	ContainerID string         `json:"containerID,omitempty"`
	IfName      string         `json:"ifname,omitempty"`
	Owner       string         `json:"owner,omitempty"` // network/container/interface; "" is nobody
	Why         string         `json:"why"`
	Held        []node.Holding `json:"held"`
	Results     []Seen         `json:"results"` // of libcni, the one that counts first

	Outcome Outcome `json:"outcome,omitempty"` // "" until it is tried
	Reason  string  `json:"reason,omitempty"`  // of another outcome than Removed

	state   node.State
	results []*node.Result
	err     error
}

// Seen is a file of libcni's cache, as it was.
type Seen struct {
	Path    string    `json:"path"`
	Inode   uint64    `json:"inode"`
	Written time.Time `json:"written"`
	Netns   string    `json:"netns"`
}

// Outcome is what became of an item.
type Outcome string

// The outcomes.
const (
	Removed Outcome = "removed"
	Skipped Outcome = "skipped" // it is not as it was
	Failed  Outcome = "failed"
)

// Stay is something that stays.
type Stay struct {
	Network     string     `json:"network,omitempty"`
	ContainerID string     `json:"containerID,omitempty"`
	IfName      string     `json:"ifname,omitempty"`
	Owner       string     `json:"owner,omitempty"`
	What        string     `json:"what,omitempty"` // if it is no attachment
	State       node.State `json:"state,omitempty"`
	Why         string     `json:"why"`
}

// Stop says why nothing of a network goes, and what to do about it.
type Stop struct {
	Network     string   `json:"network"`
	Attachments []string `json:"attachments"` // because of which
	Why         string   `json:"why"`
	Remedy      string   `json:"remedy"`
}

// Node returns the node that the report is about, as it was read last.
func (r *Report) Node() *node.Node { return r.node }

// Name returns an attachment as people name it on one network, "" if it is none.
func (it *Item) Name() string { return nameOf(it.ContainerID, it.IfName, it.Owner) }

// Name returns an attachment as people name it on one network, "" if it is none.
func (s Stay) Name() string { return nameOf(s.ContainerID, s.IfName, s.Owner) }

func nameOf(containerID, ifName, owner string) string {
	if containerID == "" {
		return owner
	}
	return containerID + "/" + ifName
}

// Err returns the error of an item that failed.
func (it *Item) Err() error { return it.err }

func (it *Item) key() plugin.Key {
	return plugin.Key{Network: it.Network, ContainerID: it.ContainerID, IfName: it.IfName}
}

func (it *Item) skip(why string) { it.Outcome, it.Reason = Skipped, why }

// isSame reports whether two items are about the same thing.
func (it *Item) isSame(other *Item) bool {
	if it.Owner != "" || other.Owner != "" {
		return it.Owner == other.Owner
	}
	return it.Network == other.Network && slices.ContainsFunc(it.Held, func(t node.Holding) bool { return lists(other.Held, t) })
}

// lists reports whether a thing is in a list, held since the same time.
func lists(list []node.Holding, t node.Holding) bool {
	return slices.ContainsFunc(list, func(other node.Holding) bool {
		isSame := t.Since == other.Since || t.Since != nil && other.Since != nil && t.Since.Equal(*other.Since)
		return isSame && t.Plugin == other.Plugin && t.What == other.What && t.Owner == other.Owner
	})
}

// Decode reads a report that was made on this host.
func Decode(text []byte) (*Report, error) {
	r := &Report{}
	const again = "make a new one: cnictl gc --report FILE"
	if err := json.Unmarshal(text, r); err != nil {
		return nil, plugin.CodeErrorf(types.ErrDecodingFailure, again, "it is no report of gc: %w", err)
	}
	host, err := os.Hostname()
	switch {
	case err != nil:
		return nil, err
	case r.Version != version:
		return nil, plugin.CodeErrorf(types.ErrDecodingFailure, again, "it is no report of gc of version %d", version)
	case r.Host != host:
		return nil, plugin.CodeErrorf(types.ErrDecodingFailure, again, "it is a report of host %q, and this is %q", r.Host, host)
	}
	return r, nil
}

// Restrict leaves of what goes only what an earlier report lists, and what is still as it says there. It skips the others, with the reason.
func (r *Report) Restrict(to *Report) {
	var left []*Item
	for _, listed := range to.Goes {
		now := r.find(listed)
		if now == nil {
			listed.skip(r.whyNot(listed))
			left = append(left, listed)
			continue
		}
		if why := listed.differs(now); why != "" {
			now.skip(why)
		}
		left = append(left, now)
	}
	r.Goes = left
}

func (r *Report) find(listed *Item) *Item {
	for _, it := range r.Goes {
		if it.isSame(listed) {
			return it
		}
	}
	return nil
}

// whyNot says why something that was listed does not go now.
func (r *Report) whyNot(listed *Item) string {
	for _, s := range r.Stays {
		if s.Owner != "" && s.Owner == listed.Owner {
			return s.Why
		}
	}
	return "it is gone already"
}

// differs says what is not as it was.
func (it *Item) differs(now *Item) string {
	for _, t := range now.Held {
		if !lists(it.Held, t) {
			return "it holds something that is not in the report: " + t.What
		}
	}
	isSame := func(a, b Seen) bool { return a.Path == b.Path && a.Inode == b.Inode && a.Written.Equal(b.Written) }
	if !slices.EqualFunc(it.Results, now.Results, isSame) {
		return "libcni's result of it was written again since"
	}
	return ""
}
