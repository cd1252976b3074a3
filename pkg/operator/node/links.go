package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
)

// Link is a link of the host.
type Link struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	MAC    string `json:"mac,omitempty"`
	MTU    int    `json:"mtu"`
	Up     bool   `json:"up"`
	Master string `json:"master,omitempty"` // the bridge or VRF that it is a port of
	Parent string `json:"parent,omitempty"` // the link that it is made on
	Owner  string `json:"owner,omitempty"`  // by its alias, the attachment that it was made for

	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Global    []netip.Prefix `json:"-"` // of these, those that may be known outside of the link

	Link netlink.Link `json:"-"`
}

// links are the host's, by name and by index.
type links struct {
	byName  map[string]*Link
	byIndex map[int]*Link
}

func readLinks() (*links, error) {
	own := &links{map[string]*Link{}, map[int]*Link{}}
	all, err := link.List(&netlink.Handle{})
	for _, l := range all {
		made := newLink(l)
		own.byName[made.Name], own.byIndex[l.Attrs().Index] = made, made
	}
	addresses, err2 := link.Addresses(&netlink.Handle{}, nil, netlink.FAMILY_ALL)
	for _, a := range addresses {
		l := own.byIndex[a.LinkIndex]
		if l == nil {
			continue
		}
		l.Addresses = append(l.Addresses, result.Prefix(*a.IPNet))
		if a.Scope == int(netlink.SCOPE_UNIVERSE) {
			l.Global = append(l.Global, result.Prefix(*a.IPNet))
		}
	}
	for _, l := range own.byIndex {
		if master := own.byIndex[l.Link.Attrs().MasterIndex]; master != nil {
			l.Master = master.Name
		}
		if parent := own.byIndex[l.Link.Attrs().ParentIndex]; parent != nil && l.Kind != "veth" {
			l.Parent = parent.Name
		}
	}
	if err = errors.Join(err, err2); err != nil {
		err = fmt.Errorf("list the links of the host: %w", err)
	}
	return own, err
}

// IsCard reports whether a link is a network card, or another device.
func (l *Link) IsCard() bool { return l.has("device") }

// IsWiFi reports whether a link is a card for Wi-Fi.
func (l *Link) IsWiFi() bool { return l.has("phy80211") }

func (l *Link) has(what string) bool {
	_, err := os.Lstat(filepath.Join("/sys/class/net", l.Name, what))
	return err == nil
}

func newLink(l netlink.Link) *Link {
	a := l.Attrs()
	return &Link{
		Name: a.Name, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0,
		Owner: held.OwnerOf(l), Link: l,
	}
}
