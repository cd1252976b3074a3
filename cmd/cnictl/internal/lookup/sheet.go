package lookup

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/result"
)

// Attachment is all about an attachment.
type Attachment struct {
	*node.Attachment
	Conflist  string       `json:"conflist,omitempty"` // the file of its network
	Routes    []node.Route `json:"routes"`             // as ADD said
	Namespace *InNamespace `json:"namespace,omitempty"`
	Inside    *Inside      `json:"inside,omitempty"`
	Beside    []string     `json:"beside"` // the other attachments of the container, by their keys
	Others    []Older      `json:"others"` // older results, of other caches
	Opened    []nft.Opened `json:"openByName,omitempty"`
}

// InNamespace is a namespace with a process in it.
type InNamespace struct {
	*node.Namespace
	Command string `json:"command,omitempty"`
}

// Inside is what is inside of the namespace, where the container can change it.
type Inside struct {
	Interface *node.Interface `json:"interface,omitempty"` // of the attachment; not there if there is none of its name
	Missing   []netip.Prefix  `json:"missing"`             // what ADD gave and is not there
	Foreign   []netip.Prefix  `json:"foreign"`             // what is there and ADD did not give
	Others    []string        `json:"others"`              // the names of the other interfaces
	Error     string          `json:"error,omitempty"`

	MissingRoutes []node.Route `json:"missingRoutes"`
	ForeignRoutes []node.Route `json:"foreignRoutes"`
}

// Older is a result that another cache has.
type Older struct {
	File    string    `json:"file"`
	Written time.Time `json:"written"`
}

// Network is all about a network.
type Network struct {
	*node.Network
	Attached []*node.Attachment `json:"attached"`
}

// Link is all about a link of the host.
type Link struct {
	*node.Link
	Attached []*node.Attachment `json:"attached"` // behind it
	Others   []string           `json:"others"`   // links that are ports of it or made on it, and are no attachment's
}

// Namespace is all about a namespace that no attachment is in.
type Namespace struct {
	InNamespace
	Interfaces []node.Interface `json:"interfaces"`
	Error      string           `json:"error,omitempty"`
}

// Subnet is who has addresses of a subnet.
type Subnet struct {
	Subnet   netip.Prefix       `json:"subnet"`
	Pools    []PoolOf           `json:"pools"`
	Attached []*node.Attachment `json:"attached"`
}

// PoolOf is a pool of a network.
type PoolOf struct {
	Network string `json:"network"`
	*node.Pool
}

// Address is about an address that no attachment has.
type Address struct {
	Address netip.Addr    `json:"address"`
	Network string        `json:"network"`
	Pool    *node.Pool    `json:"pool"`
	Gateway bool          `json:"gateway"` // it is not handed out
	Held    *node.Holding `json:"held,omitempty"`
	Last    *Holder       `json:"last,omitempty"` // who had it last, if the log says so
}

// Holder is an attachment that had an address.
type Holder struct {
	Owner string    `json:"owner"` // its key
	Pod   string    `json:"pod,omitempty"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to,omitzero"`
}

func newAttachmentSheet(n *node.Node, a *node.Attachment) *Attachment {
	s := &Attachment{Attachment: a, Routes: []node.Route{}, Beside: []string{}, Others: []Older{}}
	if w := n.Network(a.Network); w != nil {
		s.Conflist = w.File
	}
	if a.Result != nil && a.Result.Result != nil {
		for _, r := range a.Result.Result.Routes {
			route := node.Route{Destination: result.Prefix(r.Dst)}
			if r.GW != nil {
				route.Gateway = result.Addr(r.GW)
			}
			s.Routes = append(s.Routes, route)
		}
	}
	for _, r := range a.Others {
		s.Others = append(s.Others, Older{r.Path, r.Written.UTC()})
	}
	for _, t := range a.Held {
		opened, _ := nft.OpenedOf(t.Held) // who may not read it has been told so of what is held
		s.Opened = append(s.Opened, opened...)
	}
	if a.Namespace != nil {
		s.Namespace = &InNamespace{a.Namespace, a.Namespace.Command()}
		s.Inside = lookInside(a, s.Routes)
		for _, b := range attachmentsIn(n, a.Namespace) {
			if a != b {
				s.Beside = append(s.Beside, b.Owner)
			}
		}
	}
	return s
}

// lookInside compares what is in the namespace with what ADD said.
func lookInside(a *node.Attachment, given []node.Route) *Inside {
	s := &Inside{Missing: []netip.Prefix{}, Foreign: []netip.Prefix{}, Others: []string{}, MissingRoutes: []node.Route{}, ForeignRoutes: []node.Route{}}
	interfaces, err := a.Namespace.Interfaces(presence.AnyAddress)
	if err != nil {
		s.Error = err.Error()
		return s
	}
	for _, i := range interfaces {
		if i.Name == a.IfName {
			s.Interface = &i
		} else {
			s.Others = append(s.Others, i.Name)
		}
	}
	if s.Interface == nil {
		return s
	}
	for _, p := range a.Addresses {
		if !hasAddress(s.Interface.Addresses, p.Addr()) {
			s.Missing = append(s.Missing, p)
		}
	}
	if a.Result == nil || a.Result.Result == nil {
		return s // what else ADD gave is not known
	}
	for _, p := range s.Interface.Addresses {
		if !p.Addr().IsLinkLocalUnicast() && !hasAddress(a.Addresses, p.Addr()) {
			s.Foreign = append(s.Foreign, p)
		}
	}
	there := s.Interface.Routes
	for _, r := range given {
		if !slices.ContainsFunc(there, func(t node.Route) bool { return isMade(r, t) }) {
			s.MissingRoutes = append(s.MissingRoutes, r)
		}
	}
	for _, r := range there {
		if !follows(r, a) && !slices.ContainsFunc(given, func(g node.Route) bool { return isMade(g, r) }) {
			s.ForeignRoutes = append(s.ForeignRoutes, r)
		}
	}
	return s
}

// isMade reports whether a route is the one that a result names. One without a gateway there has the gateway of the address.
func isMade(given, there node.Route) bool {
	return given.Destination == there.Destination && (given.Gateway == there.Gateway || !given.Gateway.IsValid())
}

// follows reports whether a route follows from what ADD gave: one to the subnet of an address, or to a gateway.
func follows(r node.Route, a *node.Attachment) bool {
	isOf := func(p netip.Prefix) bool { return p.Masked() == r.Destination }
	return slices.ContainsFunc(a.Addresses, isOf) || r.Destination.IsSingleIP() && slices.Contains(a.Gateways, r.Destination.Addr())
}

func hasAddress(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Addr() == a })
}

func newNetworkSheet(n *node.Node, w *node.Network) *Network {
	s := &Network{Network: w, Attached: []*node.Attachment{}}
	for _, a := range n.Attachments {
		if a.Network == w.Name {
			s.Attached = append(s.Attached, a)
		}
	}
	return s
}

func newLinkSheet(n *node.Node, l *node.Link) *Link {
	s := &Link{Link: l, Attached: []*node.Attachment{}, Others: []string{}}
	ends := map[*node.Link]bool{}
	for _, a := range n.Attachments {
		if a.Master == l.Name || a.HostEnd == l {
			s.Attached = append(s.Attached, a)
		}
		ends[a.HostEnd] = true
	}
	for _, o := range n.Links() {
		if (o.Master == l.Name || o.Parent == l.Name) && !ends[o] {
			s.Others = append(s.Others, o.Name)
		}
	}
	return s
}

func newNamespaceSheet(ns *node.Namespace) *Namespace {
	s := &Namespace{InNamespace: InNamespace{ns, ns.Command()}, Interfaces: []node.Interface{}}
	interfaces, err := ns.Interfaces(presence.AnyAddress)
	if err != nil {
		s.Error = err.Error()
	}
	s.Interfaces = append(s.Interfaces, interfaces...)
	return s
}

func newAddressSheet(n *node.Node, address netip.Addr, w *node.Network, p *node.Pool) *Address {
	s := &Address{Address: address, Network: w.Name, Pool: p, Gateway: p.Gateway(address) == address}
	for _, t := range n.Unowned {
		if leased, ok := t.Address(); ok && leased == address {
			s.Held = &t
		}
	}
	log, _, _ := calllog.Read(calllog.Dir) // which is off on most nodes
	if all := calllog.Holders(log, address); len(all) > 0 {
		last := all[len(all)-1]
		s.Last = &Holder{last.Key.String(), last.Pod, last.From.UTC(), last.To.UTC()}
	}
	return s
}
