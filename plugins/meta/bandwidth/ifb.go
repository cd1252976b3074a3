package bandwidth

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// namePrefix starts the name of every ifb, as with the reference plugin.
const namePrefix = "bwp"

// names are the names that the attachment's ifb can have. The first is the reference plugin's, so that each plugin deletes what the
// other one made. All interfaces of a container on one network have the same there, so others than the first take the second.
func names(k plugin.Key) []string {
	return []string{ifbName(k.Network + k.ContainerID), ifbName(k.Network + "/" + k.ContainerID + "/" + k.IfName)}
}

func ifbName(owner string) string {
	hash := sha512.Sum512([]byte(owner))
	return namePrefix + hex.EncodeToString(hash[:6])
}

// ifbMAC returns the MAC address of the attachment's ifb. It tells GC the network where the alias does not: it may not be set yet, or be
// cut.
func ifbMAC(k plugin.Key) net.HardwareAddr {
	mac := k.MAC("ifb")
	return append(networkMAC(k.Network), mac[5])
}

// networkMAC returns what the MAC addresses of a network's ifbs begin with, locally administered and unicast.
func networkMAC(network string) net.HardwareAddr {
	hash := plugin.NetworkHash(network)
	return append(net.HardwareAddr{0x02}, hash[:4]...)
}

// isOurs reports whether a link is the ifb that was made here for the key: it has the key as its alias or, if that ADD was killed before
// it set one, the MAC address.
func isOurs(l netlink.Link, k plugin.Key) bool {
	attrs := l.Attrs()
	return l.Type() == "ifb" && (held.OwnerOf(l) == k.String() || attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, ifbMAC(k)))
}

// makeIFB makes the attachment's ifb, and sets it up.
func makeIFB(h *netlink.Handle, k plugin.Key, mtu int) (*netlink.Ifb, error) {
	for _, name := range names(k) {
		ifb := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: ifbMAC(k), MTU: mtu}}
		err := h.LinkAdd(ifb)
		if errors.Is(err, unix.EEXIST) {
			if l, err := h.LinkByName(name); err == nil && isOurs(l, k) {
				return nil, plugin.Errorf("call DEL before a second ADD", "the bandwidth of %s is limited already (ifb %s)", k, name)
			}
			continue
		}
		if err != nil {
			return nil, lacking(err, "make ifb "+name, ifbLinks)
		}
		if err := link.SetUpAs(ifb.Index, held.Alias(k)); err != nil {
			return nil, errors.Join(fmt.Errorf("set up %s: %w", name, err), link.Delete(h, ifb.Index))
		}
		return ifb, nil
	}
	return nil, plugin.Errorf("delete them if nobody uses them", "the links %q are others'", names(k))
}

// findIFBs returns the attachment's ifbs: the one that was made here, and one without an alias that has the reference plugin's name,
// unless the previous result is known not to have it.
func findIFBs(r *plugin.Request) (ifbs []netlink.Link, err error) {
	for i, name := range names(r.Key) {
		l, err := r.Links().LinkByName(name)
		if link.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", name, err)
		}
		isReference := i == 0 && l.Type() == "ifb" && l.Attrs().Alias == "" && mayHave(r.PrevResult, name)
		if isReference || isOurs(l, r.Key) {
			ifbs = append(ifbs, l)
		}
	}
	return ifbs, nil
}

func mayHave(result *types100.Result, name string) bool {
	return result == nil || slices.ContainsFunc(result.Interfaces, func(f *types100.Interface) bool {
		return f.Name == name && f.Sandbox == ""
	})
}

// ifbs are the ifbs of all attachments.
type ifbs struct {
	held.Links
	valid []plugin.Key
}

// Held lists the ifbs. Those of the reference plugin that nothing is sent into are nobody's.
func (s ifbs) Held(_ context.Context, network string) (list []plugin.Held, err error) {
	links, err := link.OfKind("ifb")
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list ifbs: %w", err)
	}
	var reference []netlink.Link
	for _, l := range links {
		a, owner := l.Attrs(), held.OwnerOf(l)
		key := plugin.ParseKey(owner)
		if bytes.HasPrefix(a.HardwareAddr, networkMAC(network)) {
			key.Network = network
		}
		switch {
		case !strings.HasPrefix(a.Name, namePrefix) || len(a.Name) != len(ifbName("")):
		case owner != "":
			list = append(list, held.Link(l, key, owner))
		case a.Alias != "":
		case key.Network != "": // of an ADD that was killed, or is under way
			list = append(list, held.Link(l, key, s.ownerOf(l)))
		default:
			reference = append(reference, l)
		}
	}
	unused, failed := unusedIFBs(s.Host, reference)
	for _, l := range unused {
		list = append(list, held.Link(l, plugin.Key{Network: network}, ""))
	}
	return list, errors.Join(err, failed)
}

// ownerOf returns the valid attachment that an ifb without an alias belongs to, "" if there is none.
func (s ifbs) ownerOf(l netlink.Link) string {
	for _, k := range s.valid {
		if isOurs(l, k) && slices.Contains(names(k), l.Attrs().Name) {
			return k.String()
		}
	}
	return ""
}

// unusedIFBs returns those of the reference plugin's ifbs that no link sends into what it receives. A list of links that changes
// meanwhile may lack the one that does: then it returns none, for the next GC to find.
func unusedIFBs(h *netlink.Handle, ifbs []netlink.Link) ([]netlink.Link, error) {
	unused := map[int]netlink.Link{}
	for _, l := range ifbs {
		// It is limited last: until then an ADD is under way.
		if kind, _, err := rootQdisc(l.Attrs().Index); err == nil && (kind == "tbf" || kind == "htb") {
			unused[l.Attrs().Index] = l
		}
	}
	if len(unused) == 0 {
		return nil, nil
	}
	links, err := h.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, nil
	}
	for i := 0; i < len(links) && len(unused) > 0 && err == nil; i++ {
		var to []int
		to, err = targetsOf(h, links[i].Attrs().Index)
		for _, index := range to {
			delete(unused, index)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up what is sent into ifbs: %w", err)
	}
	return slices.Collect(maps.Values(unused)), nil
}
