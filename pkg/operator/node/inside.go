package node

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/presence"
)

// Seen is what somebody looked for and was found inside a namespace, where the container may have put it.
type Seen struct {
	By        string // what it is there: address or MAC address
	Namespace *Namespace
	Interface Interface
}

// FindInside looks for an address or a MAC address inside of all namespaces, and returns what could not be looked at. It says what
// containers claim, not whose the address is.
func (n *Node) FindInside(name string) (list []Seen, unread []Unread) {
	address, _ := netip.ParseAddr(name)
	for _, s := range n.Namespaces {
		interfaces, err := s.Interfaces(presence.AnyAddress)
		if err != nil {
			unread = append(unread, Unread{What: s.Path(), Why: err.Error()})
			continue
		}
		for _, i := range interfaces {
			switch {
			case slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == address }):
				list = append(list, Seen{"address", s, i})
			case i.MAC != "" && strings.EqualFold(i.MAC, name):
				list = append(list, Seen{"MAC address", s, i})
			}
		}
	}
	return list, unread
}
