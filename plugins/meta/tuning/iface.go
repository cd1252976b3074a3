package tuning

import (
	"errors"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// iface is the attachment's interface, open to be changed.
type iface struct {
	conn *link.Conn
	link *link.Link // as it was found
}

// openInterface opens the interface, nil when the settings concern none of its
// attributes.
func openInterface(r *plugin.Request, s *settings) (*iface, error) {
	if s.attributes == (attributes{}) {
		return nil, nil
	}
	i, err := lookUp(r.NS(), r.IfName)
	if errors.Is(err, link.ErrNotFound) {
		return nil, plugin.Errorf("tuning changes the interface that the runtime names in CNI_IFNAME: a plugin before it must have made it", "%s has no interface %q", r.Netns, r.IfName)
	}
	return i, err
}

// lookUp opens the interface; the error is link.ErrNotFound if there is none.
func lookUp(ns *netns.NS, name string) (*iface, error) {
	conn, err := link.OpenIn(ns)
	if err != nil {
		return nil, err
	}
	l, err := conn.ByName(name)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &iface{conn, l}, nil
}

func (i *iface) set(a attribute) error { return a.set(i.conn, i.link.Index) }

// close closes it; nil is closed already.
func (i *iface) close() {
	if i != nil {
		i.conn.Close()
	}
}

// isGone tells whether err says that there is no such link.
func isGone(err error) bool { return errors.Is(err, link.ErrNotFound) }

func attributeError(remedy string, r *plugin.Request, a attribute, err error) error {
	return plugin.Errorf(remedy, "set %s of %s in %s to %s: %v", a.name, r.IfName, r.Netns, a.value, err)
}
