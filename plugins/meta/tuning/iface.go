package tuning

import (
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// findInterface returns the attachment's interface, nil when the settings concern none of its attributes. It is called in the namespace.
func findInterface(r *plugin.Request, s *settings) (netlink.Link, error) {
	if s.attributes.isZero() {
		return nil, nil
	}
	l, err := netlink.LinkByName(r.IfName)
	if link.IsNotFound(err) {
		return nil, plugin.Errorf("tuning changes the interface that the runtime names in CNI_IFNAME: a plugin before it must have made it", "%s has no interface %q", r.Netns, r.IfName)
	}
	return l, err
}

func attributeError(remedy string, r *plugin.Request, a attribute, err error) error {
	return plugin.Errorf(remedy, "set %s of %s in %s to %s: %v", a.name, r.IfName, r.Netns, a.value, err)
}
