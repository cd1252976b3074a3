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
	"github.com/cnibox/cnibox/pkg/results"
)

// The kernel delays what a link sends, not what it receives. So what the host end receives, which is what the container sends, goes
// through an ifb link (intermediate functional block) that delays it.

// namePrefix starts the name of every ifb, as with the reference plugin.
const namePrefix = "bwp"

// names are the names that the attachment's ifb can have. The first is the reference plugin's, so that each plugin deletes what the
// other one made. All interfaces of a container on one network have the same there, so others than the first take the second.
func names(k plugin.Key) [2]string {
	return [2]string{ifbName(k.Network + k.ContainerID), ifbName(k.Network + "/" + k.ContainerID + "/" + k.IfName)}
}

func ifbName(owner string) string {
	hash := sha512.Sum512([]byte(owner))
	return namePrefix + hex.EncodeToString(hash[:6])
}

// aliasPrefix starts the alias of every ifb. What follows is the key.
const aliasPrefix = "cnibox "

func alias(k plugin.Key) string { return aliasPrefix + k.String() }

// makeIFB makes the attachment's ifb, and sets it up.
func makeIFB(h *netlink.Handle, k plugin.Key, mtu int) (*netlink.Ifb, error) {
	mac := k.MAC("ifb")
	for _, name := range names(k) {
		ifb := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac[:], MTU: mtu}}
		err := h.LinkAdd(ifb)
		if err == nil {
			err = link.SetUpAs(ifb.Index, alias(k), 0)
		}
		switch {
		case err == nil:
			return ifb, nil
		case !errors.Is(err, unix.EEXIST):
			return nil, errors.Join(lacking(err, "make ifb "+name, "ifb links", "CONFIG_IFB"), deleteIFB(h, k))
		}
		if l, err := h.LinkByName(name); err == nil && isOurs(l, k) {
			return nil, plugin.Errorf("call DEL before a second ADD", "the bandwidth of %s is limited already (ifb %s)", k, name)
		}
	}
	return nil, plugin.Errorf("delete them if nobody uses them", "the links %q are others'", names(k))
}

// deleteIFB deletes an ifb that makeIFB made and could not finish.
func deleteIFB(h *netlink.Handle, k plugin.Key) error {
	var errs []error
	for _, name := range names(k) {
		if l, err := h.LinkByName(name); err == nil && isOurs(l, k) {
			errs = append(errs, link.Delete(h, l.Attrs().Index))
		}
	}
	return errors.Join(errs...)
}

// isOurs reports whether an ifb was made for the key by makeIFB: it has the key as its alias or, if that was killed before it set one,
// the MAC address.
func isOurs(l netlink.Link, k plugin.Key) bool {
	mac, attrs := k.MAC("ifb"), l.Attrs()
	return l.Type() == "ifb" && (attrs.Alias == alias(k) || attrs.Alias == "" && slices.Equal(attrs.HardwareAddr, mac[:]))
}

// findIFBs returns the attachment's ifbs: the one that was made here, or one without an alias that has the reference plugin's name,
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
		isReference := i == 0 && l.Type() == "ifb" && l.Attrs().Alias == "" && mayHaveMade(r.PrevResult, name)
		if isReference || isOurs(l, r.Key) {
			ifbs = append(ifbs, l)
		}
	}
	return ifbs, nil
}

func mayHaveMade(result *types100.Result, name string) bool {
	return result == nil || slices.ContainsFunc(result.Interfaces, func(f *types100.Interface) bool {
		return f.Name == name && f.Sandbox == ""
	})
}

// staleIFBs returns the indexes of the ifbs whose attachments of the request's network are not valid, and of those without an alias
// that nobody uses.
func staleIFBs(r *plugin.Request) (stale []int, err error) {
	valid := map[string]bool{}
	for _, k := range r.ValidKeys() {
		valid[alias(k)] = true
	}
	links, err := link.List(r.Links())
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var nameless []netlink.Link
	for _, l := range links {
		a := l.Attrs()
		switch {
		case l.Type() != "ifb" || !strings.HasPrefix(a.Name, namePrefix) || len(a.Name) != len(ifbName("")):
		case a.Alias == "":
			nameless = append(nameless, l)
		case strings.HasPrefix(a.Alias, aliasPrefix+r.Network+"/") && !valid[a.Alias]:
			stale = append(stale, a.Index)
		}
	}
	if len(nameless) == 0 {
		return stale, nil
	}
	orphans, err := orphansOf(r, nameless)
	return append(stale, orphans...), err
}

// orphansOf returns the indexes of those ifbs that belong to no attachment. They are the reference plugin's, or an ADD was killed:
// nothing on them says whose they are. libcni must have results, none of them of an attachment whose ifb has the name, and no link
// may send into it.
func orphansOf(r *plugin.Request, ifbs []netlink.Link) (orphans []int, err error) {
	cache, err := results.Open(r.Results, plugin.Key{})
	if err != nil || cache == nil {
		return nil, err
	}
	known, all := cache.Keys()
	if !all {
		return nil, nil
	}
	used, err := targets(r.Links())
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, k := range append(known, r.ValidKeys()...) {
		for _, name := range names(k) {
			taken[name] = true
		}
	}
	for _, l := range ifbs {
		if a := l.Attrs(); !taken[a.Name] && !used[a.Index] {
			orphans = append(orphans, a.Index)
		}
	}
	return orphans, nil
}
