package node

import (
	"os"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/presence"
)

// pkg/presence says what namespaces are, and what is in them.
type (
	Namespace = presence.Namespace
	Interface = presence.Interface
	Route     = presence.Route
)

// readNamespaces finds the namespaces that are mounted somewhere, or have processes.
func (n *Node) readNamespaces() {
	var err error
	if n.Namespaces, err = n.presence.Namespaces(); err != nil {
		n.couldNot("/proc", err, "")
	}
	n.ids = map[int]*Namespace{}
	n.readIDs(n.Namespaces...)
}

// readIDs notes under which numbers the host knows namespaces: a veth says by them where its other end is.
func (n *Node) readIDs(namespaces ...*Namespace) {
	host := netns.NewPair("", false)
	defer host.Close()
	for _, s := range namespaces {
		f, err := os.Open(s.Path())
		if err != nil {
			continue // it is gone
		}
		if id, err := host.Links().GetNetNsIdByFd(int(f.Fd())); err == nil && id >= 0 {
			n.ids[id] = s
		}
		_ = f.Close()
	}
}

// namespaceAt returns the namespace at a path. It is nil without an error if there is none, or our own.
func (n *Node) namespaceAt(path string) (*Namespace, error) {
	if path == "" {
		return nil, nil
	}
	s, isOwn, err := n.presence.At(path)
	if s == nil || isOwn || err != nil {
		return nil, err
	}
	for _, known := range n.Namespaces {
		if known == s {
			return s, nil
		}
	}
	n.Namespaces = append(n.Namespaces, s) // made since, or mounted where we don't see it
	n.readIDs(s)
	return s, nil
}

// NamespaceNumbered returns the namespace that the host knows under a number, nil if there is none.
func (n *Node) NamespaceNumbered(id int) *Namespace { return n.ids[id] }
