package probe

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/plugins/known"
)

// subject is what is probed.
type subject struct {
	node network.Node
	list *libcni.NetworkConfigList
	a, b *Container
	port int // of the host, that leads to b; 0 if no plugin publishes ports

	traced map[string][2]string // what whyTraced has found, and a remedy
}

// way is where the packets of a test are seen until they have reached whom they are for, as far as that is on this node.
func (w *subject) way(t *Test) []point {
	f := familyOf(t.target.Addr())
	switch {
	case t.from == nil:
		return t.reached.enter(f)
	case t.reached != nil && t.target.Addr() == t.reached.address(f) && direct(t.from, t.reached, f):
		way, end := t.from.leave(f), t.reached.enter(f)
		if t.from.hostEnd() == nil {
			return []point{way[0], end[len(end)-1]}
		}
		return append(way[:2:2], end[len(end)-2:]...)
	case t.reached != nil:
		return append(t.from.leave(f), t.reached.enter(f)...)
	}
	way, to := t.from.leave(f), routeTo(t.target.Addr())
	if to.local || to.link == nil || t.from.hostEnd() == nil {
		return way
	}
	if last := way[len(way)-1]; last.link == to.link.Attrs().Index { // the target is on the container's own link
		return way[:len(way)-1]
	}
	uplink := hostPlace(to.link, true)
	uplink.router = true
	return append(way, uplink)
}

// direct reports whether one container reaches the other without the host as a router.
func direct(from, to *Container, f family) (is bool) {
	_ = from.inside(func() error {
		routes, err := netlink.RouteGet(to.address(f).AsSlice())
		is = err == nil && len(routes) > 0 && routes[0].Gw == nil
		return err
	})
	one, other := from.bridge(), to.bridge()
	return is && (from.master() != nil || one != nil && other != nil && one.Attrs().Index == other.Attrs().Index)
}

// secludedFromHost says why the kernel lets no packets pass between the host and the containers, or "".
func (w *subject) secludedFromHost() string {
	if w.a.master() != nil && w.a.link.Type() != link.KindVLAN {
		return fmt.Sprintf("not expected to work: the kernel lets no packets pass between %s links and their own host", w.a.link.Type())
	}
	return ""
}

// secluded says why a and b are not meant to reach each other, or "".
func (w *subject) secluded() string {
	if w.isOn("portIsolation") {
		return `not expected to work: the network has "portIsolation"`
	}
	if link, ok := w.a.link.(*netlink.Macvlan); ok && (link.Mode == netlink.MACVLAN_MODE_PRIVATE || link.Mode == netlink.MACVLAN_MODE_VEPA) {
		return "not expected to work: the mode of the macvlans keeps containers of one host apart"
	}
	return ""
}

// noHairpin reports whether b can't reach itself by way of its bridge, and is not meant to.
func (w *subject) noHairpin() bool {
	return w.b.bridge() != nil && !w.b.hairpin() && !w.isOn("hairpinMode")
}

// hairpin reports whether a container's bridge sends packets back by the port by which they came.
func (c *Container) hairpin() bool {
	port, err := netlink.LinkGetProtinfo(c.hostEnd())
	return err == nil && port.Hairpin
}

// isOn reports whether a key of one of the network's plugins is true.
func (w *subject) isOn(key string) bool { return netconf.Of(w.list, "", known.Plugins.Find).IsOn(key) }

// hasNoGateway reports whether the gateway that IPAM gives is nobody's: the network is a bridge that is none, and no gateway is configured.
func (w *subject) hasNoGateway() bool {
	bridge := false
	for _, p := range netconf.Of(w.list, "", known.Plugins.Find).All() {
		if p.Facts.IsGateway || p.Config.Has("gateway") {
			return false
		}
		bridge = bridge || p.Facts.Bridge != ""
	}
	return bridge && !strings.Contains(string(w.list.Bytes), `"gateway"`)
}
