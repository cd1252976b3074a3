package node

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// State says whether an attachment is in use.
type State string

// The states.
const (
	Alive   State = "alive"   // its network namespace is there
	Gone    State = "gone"    // its network namespace is known to be gone
	Unknown State = "unknown" // neither is known
)

// Attachment is one container's interface on one network, with all that is known of it.
type Attachment struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"` // "" if only a part of the key is known: see Owner
	IfName      string `json:"ifname"`
	Owner       string `json:"owner"` // the key's text, network/container/interface; a long one is cut
	State       State  `json:"state"`
	Why         string `json:"why"` // what the state is concluded from

	Pod       string         `json:"pod,omitempty"` // Kubernetes', namespace/name
	Netns     string         `json:"netns,omitempty"`
	MAC       string         `json:"mac,omitempty"` // of the container's interface, as ADD reported it
	Addresses []netip.Prefix `json:"addresses"`
	Gateways  []netip.Addr   `json:"gateways"`
	Ports     []Port         `json:"ports"`
	HostEnd   *Link          `json:"hostEnd,omitempty"`
	Master    string         `json:"master,omitempty"` // the host's link behind which it is: a bridge, or what a macvlan is made on
	Limits    *Limits        `json:"limits,omitempty"`
	Plugins   []string       `json:"plugins"` // of the configuration that ADD had, their types
	Since     *time.Time     `json:"since,omitempty"`
	Cache     string         `json:"cache,omitempty"` // libcni's file of it
	Held      []Thing        `json:"held"`

	Result    *Result    `json:"-"` // nil if libcni has none
	Namespace *Namespace `json:"-"` // nil if it is not there
	Others    []*Result  `json:"-"` // results of other caches
}

// Key returns the attachment's key.
func (a *Attachment) Key() plugin.Key {
	return plugin.Key{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName}
}

// Address returns the attachment's first address, invalid if it has none.
func (a *Attachment) Address() netip.Addr {
	if len(a.Addresses) == 0 {
		return netip.Addr{}
	}
	return a.Addresses[0].Addr()
}

func (n *Node) newAttachment(owner string, k plugin.Key) *Attachment {
	if k.ContainerID == "" {
		k = plugin.ParseKey(owner)
	}
	a := &Attachment{
		Network: k.Network, ContainerID: k.ContainerID, IfName: k.IfName, Owner: owner, State: Unknown,
		Addresses: []netip.Prefix{}, Gateways: []netip.Addr{}, Ports: []Port{}, Plugins: []string{}, Held: []Thing{},
	}
	n.byKey[owner] = a
	n.Attachments = append(n.Attachments, a)
	return a
}

// addResult notes what libcni has of an attachment. Of two caches that have one the newer counts.
func (n *Node) addResult(r *Result) {
	owner := r.Key().String()
	a := n.byKey[owner]
	if a == nil {
		a = n.newAttachment(owner, r.Key())
	}
	switch {
	case a.Result == nil:
		a.Result = r
	case r.Written.After(a.Result.Written):
		a.Others, a.Result = append(a.Others, a.Result), r
	default:
		a.Others = append(a.Others, r)
	}
}

// complete works out what follows from the parts of an attachment.
func (n *Node) complete(a *Attachment) {
	if a.Result != nil {
		a.Netns, a.Cache = a.Result.NetNS, a.Result.Path
		a.since(a.Result.Written)
		c := n.configuration(a.Result.Config)
		a.Plugins, a.Master, a.Limits = append(a.Plugins, c.plugins...), c.master, c.limits
		a.readArguments(c.capabilities)
		a.readAddresses()
	}
	for _, t := range a.Held {
		if p, ok := t.port(); ok && !slices.ContainsFunc(a.Ports, p.isSame) {
			a.Ports = append(a.Ports, p)
		}
		if address, ok := t.Address(); ok && !slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr() == address }) {
			a.Addresses = append(a.Addresses, result.Single(address))
		}
		a.since(t.Held.Since)
	}
	n.nameHolders(a)
	n.judge(a)
}

// since notes that the attachment was there at a time: it is as old as the oldest thing that it has.
func (a *Attachment) since(t time.Time) {
	if t = t.UTC(); !t.IsZero() && (a.Since == nil || t.Before(*a.Since)) {
		a.Since = &t
	}
}

func (a *Attachment) readAddresses() {
	if a.Result.Result == nil {
		return
	}
	if i := result.ContainerInterface(a.Result.Result, a.IfName, a.Netns); i != nil {
		a.MAC = i.Mac
	}
	for _, ip := range result.AddressesOf(a.Result.Result, a.IfName) {
		a.Addresses = append(a.Addresses, result.Prefix(ip.Address))
		if ip.Gateway != nil {
			a.Gateways = append(a.Gateways, result.Addr(ip.Gateway))
		}
	}
}

// judge finds the attachment's namespace and host end, and says whether it is in use. The path of a namespace may be another container's
// by now; the host end, which has a name made from the key, is there as long as the attachment's namespace is.
func (n *Node) judge(a *Attachment) {
	at, err := (*Namespace)(nil), error(nil)
	if a.Netns != "" {
		at, err = n.at(a.Netns)
	}
	a.HostEnd = n.hostEnd(a, at)
	inside := at
	if a.HostEnd != nil {
		a.Master = a.HostEnd.Master
		inside = n.ids[a.HostEnd.Link.Attrs().NetNsID]
	}
	a.Namespace = inside
	switch {
	case err != nil:
		a.State, a.Why = Unknown, fmt.Sprintf("its network namespace %s can't be looked at: %v", a.Netns, err)
	case a.HostEnd != nil && (inside != at || at == nil):
		a.State, a.Why = Alive, fmt.Sprintf("its link %s is there, and so its network namespace", a.HostEnd.Name)
	case at != nil:
		a.State, a.Why = Alive, "its network namespace "+a.Netns+" is there"
	case a.Netns != "":
		a.State, a.Why = Gone, "its network namespace "+a.Netns+" is gone"
	case a.Result != nil:
		a.State, a.Why = Unknown, "its result names no network namespace"
	default:
		a.State, a.Why = Unknown, "libcni has no result of it, and nothing says where its network namespace is"
	}
}

// findReplaced finds attachments at whose path another container's namespace is by now, which has an interface of the same name: there
// can't be two. One container can have two with one interface: contivk8s' network has what the agent's network has made.
func (n *Node) findReplaced() {
	type place struct {
		in     *Namespace
		ifName string
	}
	newest := map[place]*Attachment{}
	for _, a := range n.Attachments {
		at := place{a.Namespace, a.IfName}
		if b := newest[at]; a.Result != nil && (b == nil || a.Result.Written.After(b.Result.Written)) {
			newest[at] = a
		}
	}
	for _, a := range n.Attachments {
		b := newest[place{a.Namespace, a.IfName}]
		if a.Namespace != nil && a.HostEnd == nil && b != nil && b.ContainerID != a.ContainerID {
			a.State, a.Why = Unknown, fmt.Sprintf("its network namespace %s is that of %s by now", a.Netns, b.Owner)
			a.Namespace = nil
		}
	}
}

// hostEnd returns the host end of an attachment's veth pair, nil if it has none. One that is not called by the key was made by the
// reference plugins: the result names it, and it has to lead into the namespace.
func (n *Node) hostEnd(a *Attachment, at *Namespace) *Link {
	if a.ContainerID != "" {
		for salt := range plugin.HostEnds {
			if l := n.Link(a.Key().HostEnd(salt)); l != nil && l.Kind == "veth" && l.Owner == a.Owner {
				return l
			}
		}
	}
	if at == nil || a.Result == nil || a.Result.Result == nil {
		return nil
	}
	for _, i := range a.Result.Result.Interfaces {
		l := n.Link(i.Name)
		if i.Sandbox == "" && l != nil && l.Kind == "veth" && n.ids[l.Link.Attrs().NetNsID] == at {
			return l
		}
	}
	return nil
}
