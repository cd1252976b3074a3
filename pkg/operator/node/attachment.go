package node

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/result"
)

// State says whether an attachment is in use.
type State = presence.State

// The states.
const (
	Alive    = presence.Alive
	Gone     = presence.Gone
	Replaced = presence.Replaced
	Unknown  = presence.Unknown
)

// States are all of them.
var States = []State{Alive, Gone, Replaced, Unknown}

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
	Reach     *Reach         `json:"reach,omitempty"`
	Plugins   []string       `json:"plugins"` // of the configuration that ADD had, their types
	Since     *time.Time     `json:"since,omitempty"`
	Cache     string         `json:"cache,omitempty"` // libcni's file of it
	Held      []Holding      `json:"held"`
	Twice     []string       `json:"twice,omitempty"`    // owners of attachments that are alive, too, with one of its addresses
	Unleased  []netip.Addr   `json:"unleased,omitempty"` // addresses that host-local has given it, and gives to others now: the leases are lost

	Result    *Result    `json:"-"` // nil if libcni has none
	Namespace *Namespace `json:"-"` // nil if it is not there
	Others    []*Result  `json:"-"` // results of other caches

	note     *presence.Note // nil if none counts
	isProven bool           // it is gone by its note
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

// macOf returns the MAC address of the container's interface, as ADD reported it, "" if it did not.
func macOf(r *Result) string {
	if r.Result == nil {
		return ""
	}
	if i := result.ContainerInterface(r.Result, r.IfName, r.NetNS); i != nil {
		return i.Mac
	}
	return ""
}

func (n *Node) newAttachment(owner string, k plugin.Key) *Attachment {
	if k.ContainerID == "" {
		k = plugin.ParseKey(owner)
	}
	a := &Attachment{
		Network: k.Network, ContainerID: k.ContainerID, IfName: k.IfName, Owner: owner, State: Unknown,
		Addresses: []netip.Prefix{}, Gateways: []netip.Addr{}, Ports: []Port{}, Plugins: []string{}, Held: []Holding{},
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

// addNotes gives attachments what their ADDs have noted. Attachments of which nothing else is known have left their notes.
func (n *Node) addNotes(notes presence.Notes) {
	all, err := notes.All()
	if err != nil {
		n.couldNot(string(notes), err, "")
	}
	for _, note := range all {
		owner := note.Key.String()
		a := n.byKey[owner]
		if a == nil {
			a = n.newAttachment(owner, note.Key)
		}
		a.note, a.Network, a.ContainerID, a.IfName = note, note.Network, note.ContainerID, note.IfName
		if a.Result == nil {
			a.Netns = note.Netns
		}
	}
}

// complete works out what follows from the parts of an attachment.
func (n *Node) complete(a *Attachment) {
	if a.Result != nil {
		a.Netns, a.Cache = a.Result.NetNS, a.Result.Path
		a.since(a.Result.Written)
		c := n.configuration(a.Result.Config)
		a.Plugins, a.Master, a.Limits = append(a.Plugins, c.plugins...), c.master, c.limits
		if c.reach != nil {
			a.Reach = new(*c.reach)
		}
		a.readArguments(c.capabilities)
		a.readAddresses()
	}
	for _, t := range a.Held {
		if a.Reach != nil {
			a.Reach.Refused += nft.RefusedOf(t.Held)
		}
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
	a.MAC = macOf(a.Result)
	for _, ip := range result.AddressesOf(a.Result.Result, a.IfName) {
		a.Addresses = append(a.Addresses, result.Prefix(ip.Address))
		if ip.Gateway != nil {
			a.Gateways = append(a.Gateways, result.Addr(ip.Gateway))
		}
	}
}

// Made returns when libcni wrote the result of an attachment's ADD, the zero time if there is none.
func (a *Attachment) Made() time.Time {
	if a.Result == nil {
		return time.Time{}
	}
	return a.Result.Written
}

// DelBegan returns when an attachment's DEL began that has not ended, the zero time if none has.
func (a *Attachment) DelBegan() time.Time { return presence.DefaultNotes.DelBegan(a.Key(), a.Made()) }

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
