package lookup

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/agnivade/levenshtein"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// RequireNetwork refuses the name of a network that the node, read from a directory of networks, has neither a file nor an attachment of. "" is all.
func RequireNetwork(n *node.Node, confDir, name string) error {
	if name == "" || n.Network(name) != nil {
		return nil
	}
	return UnknownNetwork(name, confDir, n.Networks, n.Unread)
}

// UnknownNetwork is the error of a network that is none of those of a directory, of which some files can't be used.
func UnknownNetwork(name, dir string, networks []*node.Network, broken []node.Unread) error {
	var names, why []string
	for _, w := range networks {
		names = append(names, w.Name)
	}
	for _, u := range broken {
		if filepath.Dir(u.What) == filepath.Clean(dir) {
			why = append(why, fmt.Sprintf("; %s can't be used: %s", u.What, u.Why))
		}
	}
	return NotOne(types.ErrInvalidNetworkConfig, name, names, "`cnictl show networks` lists all; name another directory with --conf-dir or NETCONFPATH",
		"no network %q in %s%s", name, dir, strings.Join(why, ""))
}

// Unknown is the error of a name that nothing on the node has. It names what is called nearly so.
func Unknown(n *node.Node, name string) error {
	const list = "`cnictl show --wide` lists all that is known; name more caches with --cache-dir"
	if _, err := netip.ParseAddr(name); err == nil {
		return NotOne(types.ErrUnknownContainer, name, namesOn(n), list, "nothing on this node has the address %s, and no pool hands it out", name)
	}
	return NotOne(types.ErrUnknownContainer, name, namesOn(n), list,
		"nothing on this node is called %q: no address, container, pod, host end, port, namespace, MAC address, network, link or subnet", name)
}

// NotOne is the error of a name that is none of some. It names those that may have been meant, and the command that lists them.
func NotOne(code uint, name string, names []string, list, format string, args ...any) error {
	if near := Near(names, name); len(near) > 0 {
		list = "there is " + strings.Join(near, ", ") + "; " + list
	}
	return plugin.CodeErrorf(code, list, format, args...)
}

// Near returns the names that may have been meant: those that are like one, or all if these are few.
func Near(names []string, name string) []string {
	const most = 5
	names = slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" || strings.ContainsFunc(s, isUnprintable) })
	slices.Sort(names)
	names = slices.Compact(names)
	like := slices.DeleteFunc(slices.Clone(names), func(known string) bool { return !isLike(known, name) })
	if len(like) == 0 && len(names) <= most {
		like = names
	}
	slices.SortStableFunc(like, func(a, b string) int { return distance(a, name) - distance(b, name) })
	return like[:min(most, len(like))]
}

// distance is how many letters names differ by, of those that are not too long to be compared.
func distance(known, name string) int {
	const most = 64
	if len(known) > most || len(name) > most {
		return most
	}
	return levenshtein.ComputeDistance(known, name)
}

// isLike reports whether a name may have been meant: it has the other in it, begins as half of the other does, or is a slip or two away.
func isLike(known, name string) bool {
	common := 0
	for common < min(len(known), len(name)) && known[common] == name[common] {
		common++
	}
	return len(name) > 1 && strings.Contains(known, name) || common > 2 && common*2 >= len(name) ||
		distance(known, name) <= min(2, len(name)/2)
}

func isUnprintable(c rune) bool { return !unicode.IsPrint(c) }

// namesOn returns what people may call things by.
func namesOn(n *node.Node) (names []string) {
	for _, w := range n.Networks {
		names = append(names, w.Name)
	}
	for _, a := range n.Attachments {
		names = append(names, a.Pod, a.ContainerID[:min(12, len(a.ContainerID))])
		for _, p := range a.Addresses {
			names = append(names, p.Addr().String())
		}
	}
	for _, l := range n.Links() {
		names = append(names, l.Name)
	}
	for _, ns := range n.Namespaces {
		for _, path := range ns.Paths {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}
