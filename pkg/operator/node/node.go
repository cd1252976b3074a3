// Package node says what is on this node: its networks and their pools, its attachments with all that they hold, its network namespaces,
// and what belongs to nobody; and what is on the host besides: links, routes, uplinks, mounts and processes. It changes nothing.
//
// There is no database of it. Plugins are asked what they hold, what runtimes know is read from libcni's caches, and all of it is joined
// by the key of an attachment. A source that can't be read is in Unread; what the others say is there all the same.
package node

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
)

// Where runtimes keep networks, plugins and libcni's results unless they are told otherwise.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultBinDir  = "/opt/cni/bin"
)

// CacheDirs are the cache directories that are looked into in any case: libcni's own, which containerd, podman, nerdctl and Nomad use, and
// that of multus.
var CacheDirs = []string{libcni.CacheDir, "/var/lib/cni/multus"}

// Options say where to look.
type Options struct {
	ConfDir   string       // "" is DefaultConfDir
	CacheDirs []string     // besides CacheDirs
	Plugins   plugin.Table // those that are asked what they hold
	BinDirs   []string     // of plugins that are programs of their own
	Shared    bool         // ask also what hosts share, in etcd: with the time for its answers

	Runtimes []containers.Runtime // are asked what they run, if something seems to be gone
	Notes    presence.Notes       // of the namespaces that ADDs were given; "" is where plugins have them
}

func (o Options) caches() []string {
	dirs := slices.Clone(CacheDirs)
	for _, dir := range o.CacheDirs {
		if dir = filepath.Clean(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// NotesDir is where the notes are.
func (o Options) NotesDir() presence.Notes { return cmp.Or(o.Notes, presence.DefaultNotes) }

// Node is what is on a node.
type Node struct {
	Attachments []*Attachment `json:"attachments"` // ordered by network, container, interface
	Networks    []*Network    `json:"networks"`    // of the directory of networks, and those that only attachments name
	Namespaces  []*Namespace  `json:"namespaces"`
	Unowned     []Holding     `json:"unowned"` // what is held for nobody who is known
	Unread      []Unread      `json:"unread"`

	Runtimes []containers.Answer `json:"-"` // those that were asked
	Stores   []plugin.Store      `json:"-"` // where plugins of this node may hold something

	Host

	presence *presence.Host
	byKey    map[string]*Attachment // by Key.String()
	parts    []*netconf.Part
	ids      map[int]*Namespace // by their ids as the host counts them

	plugins        plugin.Table
	configurations map[string]*configuration // by their text
}

// Unread is something that could not be looked at, so that the node may have more than is listed.
type Unread struct {
	What string `json:"what"` // a path, or what was asked
	Why  string `json:"why"`

	Network string `json:"network,omitempty"` // whose attachment it may be about, if its name says so
}

// IsQuestion reports whether it is something that was asked, so that all answers may lack something, and no file.
func (u Unread) IsQuestion() bool { return !filepath.IsAbs(u.What) }

// Read looks at the node. It asks plugins what they hold before it reads the caches: an attachment that is being made has a result then,
// or is not listed at all.
func Read(ctx context.Context, o Options) *Node {
	n := &Node{plugins: o.Plugins, configurations: map[string]*configuration{}, byKey: map[string]*Attachment{}, Attachments: []*Attachment{}, Networks: []*Network{}, Namespaces: []*Namespace{}, Unowned: []Holding{}, Unread: []Unread{}, Runtimes: []containers.Answer{}}
	n.readNetworks(o)
	results, unread := n.readResults(o, nil)
	holdings := n.readHeld(ctx, o, results) // with the configurations that results have, too
	if len(holdings) > 0 {
		results, unread = n.readResults(o, results)
	}
	holdings = append(holdings, n.readShared(ctx, o, holdings)...)
	n.Unread = append(n.Unread, unread...)
	n.presence = presence.NewHost(o.NotesDir())
	if err := n.ReadLinks(); err != nil {
		n.couldNot("links of the host", err, "")
	}
	n.readNamespaces()
	for _, r := range results {
		n.addResult(r)
	}
	for _, t := range holdings {
		n.addThing(t)
	}
	n.addNotes(o.NotesDir())
	for _, a := range n.Attachments {
		n.complete(a)
	}
	n.spare(ctx, o.Runtimes)
	n.checkAddresses()
	n.sumUp()
	slices.SortFunc(n.Attachments, func(a, b *Attachment) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return n
}

func (n *Node) couldNot(what string, err error, network string) {
	for _, u := range n.Unread {
		if u.What == what {
			return
		}
	}
	n.Unread = append(n.Unread, Unread{what, err.Error(), network})
}

// Parts returns the configurations of plugins that networks and results have, and all objects inside of them. One is empty: it stands for
// what plugins do unless they are told otherwise.
func (n *Node) Parts() []*netconf.Part { return n.parts }

// Attachment returns the attachment with a key, nil if there is none.
func (n *Node) Attachment(k plugin.Key) *Attachment { return n.byKey[k.String()] }

// Network returns the network called name, nil if there is none.
func (n *Node) Network(name string) *Network {
	for _, w := range n.Networks {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// network returns the network called name, which is noted if no file has it.
func (n *Node) network(name string) *Network {
	if w := n.Network(name); w != nil {
		return w
	}
	w := &Network{Name: name, Plugins: []string{}, Pools: []*Pool{}}
	n.Networks = append(n.Networks, w)
	return w
}

// sumUp counts what networks have, and orders them.
func (n *Node) sumUp() {
	for _, a := range n.Attachments {
		w := n.network(a.Network)
		w.Attachments++
		if a.State.IsOver() {
			w.Gone++
		}
		for _, t := range a.Held {
			w.count(t, a.State)
		}
	}
	for _, t := range n.Unowned {
		if t.Held.Key.Network != "" {
			n.network(t.Held.Key.Network).count(t, Unknown)
		}
	}
	for _, w := range n.Networks {
		w.spread()
	}
	slices.SortStableFunc(n.Networks, func(a, b *Network) int { return strings.Compare(a.Name, b.Name) })
}
