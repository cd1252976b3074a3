package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
)

// why says what may have stopped packets between two places that follow each other. Without a test it is about ARP.
func (w *subject) why(t *Test, from, next point) (reason, remedy string) {
	for _, p := range []point{from, next} {
		if reason, remedy := p.state(); reason != "" {
			return reason, remedy
		}
	}
	if link, err := next.look(); err == nil && t != nil && t.size > link.Attrs().MTU {
		return fmt.Sprintf("%s takes packets of %d bytes at most, and this one has %d", next, link.Attrs().MTU, t.size),
			fmt.Sprintf(`set "mtu": %d in the network, or raise that of %s`, link.Attrs().MTU, next)
	}
	switch {
	case from.in != nil || next.in != nil:
		return "", ""
	case from.router && next.router && t != nil:
		return w.whyTraced(t)
	}
	return w.whyNotBridged(t, from, next)
}

// state says what is wrong with the link of a place by itself.
func (p point) state() (reason, remedy string) {
	link, err := p.look()
	switch {
	case err != nil:
		return fmt.Sprintf("%s is gone", p), ""
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Sprintf("%s is down", p), "set it up: ip link set " + p.name + " up"
	case link.Attrs().OperState == netlink.OperDown || link.Attrs().OperState == netlink.OperLowerLayerDown:
		return fmt.Sprintf("%s has no carrier: what is at its other end is down", p), "set the other end up; ip -d link shows which it is"
	}
	return "", ""
}

// whyNotBridged looks at two links of one bridge, of which one may be the bridge itself.
func (w *subject) whyNotBridged(t *Test, from, next point) (reason, remedy string) {
	one, err := from.look()
	other, err2 := next.look()
	if errors.Join(err, err2) != nil {
		return "", ""
	}
	for _, pair := range [][2]netlink.Link{{one, other}, {other, one}} {
		port, bridge := pair[0].Attrs(), pair[1]
		if bridge.Type() == link.KindBridge && port.MasterIndex != bridge.Attrs().Index {
			return fmt.Sprintf("%s is not a port of %s", port.Name, bridge.Attrs().Name), fmt.Sprintf("ip link set %s master %s", port.Name, bridge.Attrs().Name)
		}
	}
	if bridge, err := netlink.LinkByIndex(one.Attrs().MasterIndex); err == nil && bridge.Attrs().Flags&net.FlagUp == 0 {
		return bridge.Attrs().Name + " is down", "set it up: ip link set " + bridge.Attrs().Name + " up"
	}
	p1, err := netlink.LinkGetProtinfo(one)
	p2, err2 := netlink.LinkGetProtinfo(other)
	if errors.Join(err, err2) == nil && p1.Isolated && p2.Isolated {
		return fmt.Sprintf("%s and %s are isolated ports of the bridge, which keeps such apart", from, next),
			fmt.Sprintf(`bridge link set dev %s isolated off; if containers should not reach each other, say "portIsolation" in the network`, next)
	}
	return w.whyTraced(t)
}

// isPublished reports whether the test asks by a port of the host.
func (t *Test) isPublished() bool {
	return t.reached != nil && int(t.target.Port()) == t.reached.port && t.reached.port != 0
}

// whyNotSent says why nothing was seen at the first place of a way.
func (w *subject) whyNotSent(t *Test, first point) (reason, remedy string) {
	if reason, remedy := first.state(); reason != "" {
		return reason, remedy
	}
	if t.isPublished() && t.from == nil {
		return w.whyTraced(t)
	}
	if t.from != nil && (errors.Is(t.err, syscall.ENETUNREACH) || errors.Is(t.err, syscall.EHOSTUNREACH)) {
		return fmt.Sprintf("%s has no route to %s", t.from.Name, t.target.Addr()), "give the network routes (isDefaultGateway, or routes of its ipam)"
	}
	return fmt.Sprint(t.err), ""
}

// whyNobodyHas says why a question for an address is not answered at the place where it came last.
func whyNobodyHas(last point, target netip.Addr) (reason, remedy string) {
	switch {
	case last.in != nil:
		return fmt.Sprintf("%s does not say that it has %s", last.in.Name, target), ""
	case last.out:
		return fmt.Sprintf("nobody beyond %s says that he has %s", last, target), "correct the address, or the gateway in the network"
	case !routeTo(target).local:
		return fmt.Sprintf("the host does not have the address %s", target),
			"cnictl repair puts gateway addresses back; if the host is no router here (isGateway is false), name a gateway that is there"
	}
	return fmt.Sprintf("the host has %s, and does not say so at %s: arp_ignore, or a filter", target, last), ""
}

// explainSilence says why a request that came to the end of its way on this node was not answered.
func (w *subject) explainSilence(l *Loss, t *Test, seen *traces, way []point, found trail) {
	last, back := way[len(way)-1], reversed(way)
	switch {
	case len(found.resets) > 0:
		l.explain(fmt.Sprintf("%s refused the connection", found.resets[0].from), "")
	case last.in != nil:
		answer := &Loss{Packet: answerPacket, Reason: l.Reason}
		if w.explainNeighbour(answer, t, seen, back) {
			*l = *answer
			return
		}
		l.explain(whyContainerIsSilent(last, found))
	case !last.out:
		l.explain(w.whyHostIsSilent(t))
	default:
		l.explain(w.whyOutsideIsSilent(t, last, found))
	}
}

// whyContainerIsSilent looks for the way back.
func whyContainerIsSilent(last point, found trail) (reason, remedy string) {
	for _, p := range found.requests {
		if !p.isAt(last) {
			continue
		}
		err := last.in.inside(func() error {
			_, err := netlink.RouteGet(p.from.AsSlice())
			return err
		})
		if err != nil {
			return fmt.Sprintf("%s has no route back to %s", last.in.Name, p.from), "give the network routes (isDefaultGateway, or routes of its ipam)"
		}
	}
	return "", ""
}

func (w *subject) whyHostIsSilent(t *Test) (reason, remedy string) {
	if to := t.target.Addr(); !routeTo(to).local {
		return fmt.Sprintf("the host does not have the address %s", to), "cnictl repair puts gateway addresses back"
	}
	if off, err := sysctl.Sysctl("net.ipv4.icmp_echo_ignore_all"); err == nil && off != "0" && t.protocol == echo {
		return "the host answers no pings: net.ipv4.icmp_echo_ignore_all is 1", ""
	}
	if reason, remedy := w.whyTraced(t); reason != "" {
		return reason, remedy
	}
	if t.protocol != echo {
		return fmt.Sprintf("nothing on the host answers at %s", t.To), "start what should listen there, and let its packets pass the INPUT rules"
	}
	return "", ""
}

// whyOutsideIsSilent looks at the last packet that left the node.
func (w *subject) whyOutsideIsSilent(t *Test, last point, found trail) (reason, remedy string) {
	if reason, remedy := w.whyTraced(t); reason != "" {
		return reason, remedy
	}
	for _, p := range found.requests {
		if p.isAt(last) && !routeTo(p.from).local && t.from.hostEnd() != nil {
			return fmt.Sprintf("it left with the address %s, to which others may know no way back", p.from), `masquerade ("ipMasq": true), or give others a route to the network`
		}
	}
	if t.size > 0 {
		return fmt.Sprintf("%d bytes may be too large for the way, on which somebody should have said so", t.size), `set a smaller "mtu" in the network`
	}
	return "", ""
}
