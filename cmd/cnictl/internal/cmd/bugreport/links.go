package bugreport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// namespace is what is in a network namespace, as the kernel lists it.
type namespace struct {
	Namespace *node.Namespace `json:"namespace,omitempty"` // nil is the host's
	Links     []link          `json:"links"`
	Routes    []string        `json:"routes"` // of all tables
	Rules     []string        `json:"rules"`
	Unread    []string        `json:"unread,omitempty"`
}

type link struct {
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

// most routes of a namespace are read: a container can make as many as it likes.
const mostRoutes = 2000

func readNamespace(h *netlink.Handle) namespace {
	n := namespace{Links: []link{}, Routes: []string{}, Rules: []string{}}
	links, err := h.LinkList()
	n.note("links", err)
	byIndex := map[int]int{}
	for i, l := range links {
		byIndex[l.Attrs().Index] = i
		n.Links = append(n.Links, newLink(l))
	}
	addresses, err := h.AddrList(nil, netlink.FAMILY_ALL)
	n.note("addresses", err)
	for _, a := range addresses {
		if i, ok := byIndex[a.LinkIndex]; ok {
			n.Links[i].Addresses = append(n.Links[i].Addresses, a.String())
		}
	}
	err = h.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		n.Routes = append(n.Routes, routeText(r))
		return len(n.Routes) < mostRoutes
	})
	n.note("routes", err)
	for family, name := range map[int]string{netlink.FAMILY_V4: "IPv4", netlink.FAMILY_V6: "IPv6"} {
		rules, err := h.RuleList(family)
		n.note("rules of "+name, err)
		for _, r := range rules {
			n.Rules = append(n.Rules, name+" "+strings.TrimSpace(r.String()))
		}
	}
	slices.SortStableFunc(n.Rules, func(a, b string) int { return cmp.Compare(a[:len("IPv4")], b[:len("IPv4")]) })
	return n
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

func (n *namespace) note(what string, err error) {
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		n.Unread = append(n.Unread, fmt.Sprintf("%s: %v", what, err))
	}
}

func newLink(l netlink.Link) link {
	a := l.Attrs()
	own := link{
		Index: a.Index, Name: a.Name, Alias: a.Alias, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Flags: a.Flags.String(), State: a.OperState.String(),
		Master: a.MasterIndex, Parent: a.ParentIndex, NetnsID: a.NetNsID, Addresses: []string{},
	}
	if c := a.Statistics; c != nil {
		own.Received, own.ReceiveDropped, own.ReceiveErrors = c.RxPackets, c.RxDropped, c.RxErrors
		own.Sent, own.SendDropped, own.SendErrors = c.TxPackets, c.TxDropped, c.TxErrors
	}
	return own
}

func (s *source) readHostNetwork(_ context.Context, out *output) {
	out.addJSON("network/host.json", readNamespace(&netlink.Handle{}))
}

// readNamespaces looks into the namespaces of containers.
func (s *source) readNamespaces(ctx context.Context, out *output) {
	if s.node == nil {
		out.fail("namespaces", errNoNode)
		return
	}
	for _, ns := range s.node.Namespaces {
		if ctx.Err() != nil {
			out.fail("namespaces", ctx.Err())
			return
		}
		if !s.isOf(ns) {
			continue
		}
		inside, err := lookInside(ns)
		if _, gone := os.Stat(ns.Path()); err != nil && errors.Is(gone, fs.ErrNotExist) {
			continue // it has ended meanwhile
		}
		if err != nil {
			out.fail(ns.Path(), err)
			continue
		}
		out.addJSON(fmt.Sprintf("network/namespace-%d.json", ns.Inode), inside)
	}
}

// isOf reports whether a namespace is of the network that is asked for.
func (s *source) isOf(ns *node.Namespace) bool {
	if s.Network == "" {
		return true
	}
	for _, a := range s.node.Attachments {
		if a.Network == s.Network && a.Namespace == ns {
			return true
		}
	}
	return false
}

func lookInside(ns *node.Namespace) (inside namespace, err error) {
	pair := netns.NewPair(ns.Path(), false)
	defer pair.Close()
	if err := pair.Err(); err != nil {
		return inside, err
	}
	h, err := pair.LinksInside()
	if err != nil {
		return inside, err
	}
	inside = readNamespace(h)
	inside.Namespace = ns
	return inside, nil
}
