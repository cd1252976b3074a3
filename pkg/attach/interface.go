package attach

import (
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// lookUp returns the container's interface that the request names.
func lookUp(r *plugin.Request) (*netlink.Handle, netlink.Link, error) {
	inside, err := r.LinksInside()
	if err != nil {
		return nil, nil, err
	}
	l, err := inside.LinkByName(r.IfName)
	return inside, l, err
}

// Interface returns the interface that a plugin before in the chain has made, for plugins that change it.
func Interface(r *plugin.Request) (*netlink.Handle, netlink.Link, error) {
	inside, l, err := lookUp(r)
	if link.IsNotFound(err) {
		err = plugin.Errorf("a plugin before this one in the chain must have made the interface that the runtime names in CNI_IFNAME",
			"%s has no interface %s", r.Netns, r.IfName)
	}
	return inside, l, err
}

// RefuseSecond refuses an ADD of an attachment that is there. A delegate that is another program would fail, and its DEL, which then
// follows, take the attachment away.
func RefuseSecond(r *plugin.Request) error {
	_, _, err := lookUp(r)
	switch {
	case link.IsNotFound(err):
		return nil
	case err == nil:
		return plugin.Errorf("call DEL before another ADD, or choose another interface name", "interface %s is in %s already", r.IfName, r.Netns)
	}
	return err
}
