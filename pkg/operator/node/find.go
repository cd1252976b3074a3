package node

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Match is what a name that a person gives may mean.
type Match struct {
	Attachment *Attachment
	By         string // what of it the name is, such as "address"
}

// Find returns the attachments that a name may mean: an address, the id of a container or its beginning, a pod, a host end, a published
// port, a namespace or its path, a MAC address. If the name is exactly that of some, those whose name only begins so are left out. A pod's name
// leaves none out: anybody may call a pod as another container's id begins.
func (n *Node) Find(name string) (matches []Match) {
	if name == "" {
		return nil
	}
	var begin []Match
	for _, a := range n.Attachments {
		switch by := a.matches(name); {
		case by != "":
			matches = append(matches, Match{a, by})
		case len(name) >= 3 && strings.HasPrefix(a.ContainerID, name):
			begin = append(begin, Match{a, "container"})
		}
	}
	if slices.ContainsFunc(matches, func(m Match) bool { return m.By != "pod" }) {
		return matches
	}
	return append(matches, begin...)
}

// matches returns what of the attachment a name is, "" if it is nothing of it.
func (a *Attachment) matches(name string) string {
	address, _ := netip.ParseAddr(name)
	prefix, _ := netip.ParsePrefix(name)
	switch {
	case a.ContainerID == name, a.Owner == name, a.ContainerID+"/"+a.IfName == name:
		return "container"
	case slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr() == address || p == prefix }):
		return "address"
	case a.Pod != "" && (a.Pod == name || strings.HasSuffix(a.Pod, "/"+name)):
		return "pod"
	case a.HostEnd != nil && a.HostEnd.Name == name:
		return "host end"
	case strings.EqualFold(a.MAC, name), a.HostEnd != nil && strings.EqualFold(a.HostEnd.MAC, name):
		return "MAC address"
	case slices.ContainsFunc(a.Ports, func(p Port) bool { return p.isNamed(name) }):
		return "port"
	case a.Namespace != nil && a.Namespace.Is(name), a.Netns != "" && a.Netns == name:
		return "namespace"
	}
	return ""
}

// isNamed reports whether a name is the port's: 8080, :8080 or 127.0.0.1:8080, and tcp/ before or /tcp behind it.
func (p Port) isNamed(name string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), p.Protocol+"/"), "/"+p.Protocol)
	return name == p.Host() || strings.TrimPrefix(name, ":") == strconv.Itoa(p.HostPort)
}
