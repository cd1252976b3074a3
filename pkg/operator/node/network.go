package node

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Listing is all that a network namespace has, as the kernel lists it at one time.
type Listing struct {
	Namespace *Namespace   `json:"namespace,omitempty"` // nil is the host's
	Links     []ListedLink `json:"links"`
	Routes    []string     `json:"routes"` // of all tables
	Rules     []string     `json:"rules"`
	Unread    []string     `json:"unread,omitempty"`
}

// ListedLink is a link with its counters.
type ListedLink struct {
	Index     int      `json:"index"`
	Name      string   `json:"name"`
	Alias     string   `json:"alias,omitempty"`
	Kind      string   `json:"kind"`
	MAC       string   `json:"mac,omitempty"`
	MTU       int      `json:"mtu"`
	Flags     string   `json:"flags"`
	State     string   `json:"state"`
	Master    int      `json:"master,omitempty"`  // an index
	Parent    int      `json:"parent,omitempty"`  // an index
	NetnsID   int      `json:"netnsID,omitempty"` // where the other end is, -1 is here
	Addresses []string `json:"addresses"`

	// Packets.
	Received       uint64 `json:"received,omitempty"`
	Sent           uint64 `json:"sent,omitempty"`
	ReceiveDropped uint64 `json:"receiveDropped,omitempty"`
	SendDropped    uint64 `json:"sendDropped,omitempty"`
	ReceiveErrors  uint64 `json:"receiveErrors,omitempty"`
	SendErrors     uint64 `json:"sendErrors,omitempty"`
}

// mostListed routes of a namespace are read: a container can make as many as it likes.
const mostListed = 2000

// List lists what the host has, or a namespace that is not nil.
func List(in *Namespace) (*Listing, error) {
	l := &Listing{Namespace: in, Links: []ListedLink{}, Routes: []string{}, Rules: []string{}}
	h := &netlink.Handle{}
	if in != nil {
		pair := netns.NewPair(in.Path(), false)
		defer pair.Close()
		inside, err := pair.LinksInside()
		if err = cmp.Or(pair.Err(), err); err != nil {
			return nil, err
		}
		h = inside
	}
	links, err := h.LinkList()
	l.note("links", err)
	byIndex := map[int]int{}
	for i, own := range links {
		byIndex[own.Attrs().Index] = i
		l.Links = append(l.Links, newListedLink(own))
	}
	addresses, err := h.AddrList(nil, netlink.FAMILY_ALL)
	l.note("addresses", err)
	for _, a := range addresses {
		if i, ok := byIndex[a.LinkIndex]; ok {
			l.Links[i].Addresses = append(l.Links[i].Addresses, a.String())
		}
	}
	err = h.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		l.Routes = append(l.Routes, routeText(r))
		return len(l.Routes) < mostListed
	})
	l.note("routes", err)
	for i, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		name := []string{"IPv4", "IPv6"}[i]
		rules, err := h.RuleList(family)
		l.note("rules of "+name, err)
		for _, r := range rules {
			l.Rules = append(l.Rules, name+" "+strings.TrimSpace(r.String()))
		}
	}
	return l, nil
}

// routeText returns a route in the words of ip(8).
func routeText(r netlink.Route) string {
	text := "default"
	if r.Dst != nil {
		text = r.Dst.String()
	}
	if r.Gw != nil {
		text += " via " + r.Gw.String()
	}
	if r.Src != nil {
		text += " src " + r.Src.String()
	}
	if len(r.MultiPath) > 0 {
		text += fmt.Sprintf(" nexthops %v", r.MultiPath)
	}
	return fmt.Sprintf("%s dev %d table %d metric %d type %d proto %d", text, r.LinkIndex, r.Table, r.Priority, r.Type, r.Protocol)
}

func (l *Listing) note(what string, err error) {
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		l.Unread = append(l.Unread, fmt.Sprintf("%s: %v", what, err))
	}
}

func newListedLink(l netlink.Link) ListedLink {
	a := l.Attrs()
	own := ListedLink{
		Index: a.Index, Name: a.Name, Alias: a.Alias, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Flags: a.Flags.String(), State: a.OperState.String(),
		Master: a.MasterIndex, Parent: a.ParentIndex, NetnsID: a.NetNsID, Addresses: []string{},
	}
	if c := a.Statistics; c != nil {
		own.Received, own.ReceiveDropped, own.ReceiveErrors = c.RxPackets, c.RxDropped, c.RxErrors
		own.Sent, own.SendDropped, own.SendErrors = c.TxPackets, c.TxDropped, c.TxErrors
	}
	return own
}
