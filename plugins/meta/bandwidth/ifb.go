package bandwidth

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

const (
	namePrefix  = "bwp"     // starts the name of every ifb, as with the reference plugin
	aliasPrefix = "cnibox " // starts the alias of every ifb; what follows is the key
)

// names are the names that the attachment's ifb can have. The first is the reference plugin's, so that each plugin deletes what the
// other one made. All interfaces of a container on one network have the same there, so others than the first take the second.
func names(k plugin.Key) [2]string {
	return [2]string{ifbName(k.Network + k.ContainerID), ifbName(k.Network + "/" + k.ContainerID + "/" + k.IfName)}
}

func ifbName(owner string) string {
	hash := sha512.Sum512([]byte(owner))
	return namePrefix + hex.EncodeToString(hash[:6])
}

func alias(k plugin.Key) string { return aliasPrefix + k.String() }

// isOurs reports whether a link is the ifb that was made here for the key: it has the key as its alias or, if that ADD was killed before
// it set one, the MAC address.
func isOurs(l netlink.Link, k plugin.Key) bool {
	mac, attrs := k.MAC("ifb"), l.Attrs()
	return l.Type() == "ifb" && (attrs.Alias == alias(k) || attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, mac[:]))
}

// makeIFB makes the attachment's ifb, and sets it up.
func makeIFB(h *netlink.Handle, k plugin.Key, mtu int) (*netlink.Ifb, error) {
	mac := k.MAC("ifb")
	for _, name := range names(k) {
		ifb := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac[:], MTU: mtu}}
		err := h.LinkAdd(ifb)
		if errors.Is(err, unix.EEXIST) {
			if l, err := h.LinkByName(name); err == nil && isOurs(l, k) {
				return nil, plugin.Errorf("call DEL before a second ADD", "the bandwidth of %s is limited already (ifb %s)", k, name)
			}
			continue
		}
		if err != nil {
			return nil, lacking(err, "make ifb "+name, "ifb links", "CONFIG_IFB")
		}
		if err := link.SetUpAs(ifb.Index, alias(k), 0); err != nil {
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

// staleIFBs returns the indexes of the ifbs whose attachments of the request's network are not valid. Those without an alias are the
// reference plugin's, or of an ADD that was killed, and say nothing of their owner: they are stale if nothing is sent into them.
func staleIFBs(r *plugin.Request) (stale []int, err error) {
	valid := map[string]bool{}
	for _, k := range r.ValidKeys() {
		valid[alias(k)] = true
	}
	links, err := link.List(r.Links())
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var used map[int]bool
	for _, l := range links {
		a := l.Attrs()
		switch {
		case l.Type() != "ifb" || !strings.HasPrefix(a.Name, namePrefix) || len(a.Name) != len(ifbName("")):
		case a.Alias != "":
			if strings.HasPrefix(a.Alias, aliasPrefix+r.Network+"/") && !valid[a.Alias] {
				stale = append(stale, a.Index)
			}
		default:
			if used == nil {
				if used, err = targets(r.Links()); err != nil {
					return stale, err
				}
			}
			if !used[a.Index] {
				stale = append(stale, a.Index)
			}
		}
	}
	return stale, nil
}
