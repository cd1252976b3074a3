package doctor

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

var (
	dockerDrops = codes.Declare(finding.Code{Name: "docker-drops", Severity: finding.Error,
		Meaning: "Docker has set the policy of chain FORWARD to DROP: containers of this network don't reach anything but the host.",
		Remedy:  "`iptables -I DOCKER-USER …`, or the plugin `firewall`"})
	forwardDrops = codes.Declare(finding.Code{Name: "forward-drops", Severity: finding.Error,
		Meaning: "The host drops what containers of this network send through it.",
		Remedy:  "`iptables -I FORWARD …`, `nft insert rule …`, or the plugin `firewall`"})
	ufwDrops = codes.Declare(finding.Code{Name: "ufw-drops", Severity: finding.Error,
		Meaning: "ufw drops what containers of this network send through the host.",
		Remedy:  "`ufw route allow in on BRIDGE`, `ufw route allow out on BRIDGE`, or the plugin `firewall`"})
	firewalldNoZone = codes.Declare(finding.Code{Name: "firewalld-no-zone", Severity: finding.Error,
		Meaning: "firewalld rejects what containers of this network send through the host.",
		Remedy:  "`firewall-cmd --zone=trusted --change-source=SUBNET`, or the plugin `firewall`"})
	packetLost = codes.Declare(finding.Code{Name: "packet-lost", Severity: finding.Error,
		Meaning: "Packets of this network's containers get lost on the host, and no rule of the packet filter is to blame.",
		Remedy:  "what [`trace`](trace.md) says of it"})
)

// checkPackets follows a packet of one container of each network, by IPv4 and IPv6, to where it would leave the node. Nothing of the container's has a
// part in it, and nobody gets it.
func checkPackets(ctx context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		if !n.isRouted() {
			continue
		}
		for _, is := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
			a, from := n.sender(is)
			if a == nil {
				continue
			}
			cause, err := s.follow(ctx, a, from)
			if err != nil {
				return list, err // others would fail as well
			}
			if cause != nil && cause.Whose != trace.Ours { // such as a list of the network's own
				f := found(codeOf(cause), n.Name, nil, "packets of %s from %s to others get lost: %s", a.ContainerID, from, cause.Summary)
				if f.Remedy == "" { // the network's name is not one to beware of
					f.Remedy, f.Commands = cause.Remedy, cause.Commands
				}
				list = append(list, f)
			}
		}
	}
	return list, nil
}

// sender is a container of the network that has an address of a family, and has been attached by somebody who noted how. One that has set its own link
// down gets no packets, and the others do.
func (n *network) sender(is func(netip.Addr) bool) (*node.Attachment, netip.Addr) {
	for _, a := range n.alive {
		for _, p := range a.Addresses {
			if a.HostEnd != nil && a.Result != nil && is(p.Addr()) && !isUnplugged(a.HostEnd.Link) {
				return a, p.Addr()
			}
		}
	}
	return nil, netip.Addr{}
}

// isUnplugged reports whether a link is up, and what is at its other end is not.
func isUnplugged(l netlink.Link) bool {
	a := l.Attrs()
	return a.Flags&net.FlagUp != 0 && (a.OperState == netlink.OperDown || a.OperState == netlink.OperLowerLayerDown)
}

// follow returns why packets of an attachment get lost: the first cause, if none arrives that is for somebody outside. A port that a rule leads to somebody on
// this node says nothing of those: another one is tried.
func (s *subject) follow(ctx context.Context, a *node.Attachment, from netip.Addr) (*trace.Cause, error) {
	const https, http = 443, 80
	for _, port := range []uint16{https, http} {
		first, isLed, err := s.followTo(ctx, a, from, targets(a, from, port))
		if !isLed || err != nil {
			return first, err
		}
	}
	return nil, nil
}

func (s *subject) followTo(ctx context.Context, a *node.Attachment, from netip.Addr, targets []netip.AddrPort) (first *trace.Cause, isLed bool, err error) {
	const patience = time.Second
	for _, to := range targets {
		r, err := trace.Trace(ctx, trace.Request{
			Flow:     trace.Flow{Protocol: trace.TCP, From: from, To: to.Addr(), ToPort: to.Port()},
			Source:   &trace.Container{Name: a.ContainerID, Attachments: []*node.Attachment{a}},
			Imitated: true, Brief: true, Timeout: patience, Host: &s.Host, Plugins: s.Plugins,
		})
		switch {
		case err != nil:
			return nil, false, err
		case r.IsLed:
			isLed = true
		case r.Cause == nil:
			return nil, false, nil
		case first == nil:
			first = r.Cause
		}
	}
	return first, isLed, nil
}

// targets are for whom the packets are: for one whom nobody has and, as other rules may be for him, for the router on the way there. If the container
// has a list, it is the first on that.
func targets(a *node.Attachment, from netip.Addr, port uint16) (list []netip.AddrPort) {
	if a.Reach == nil || a.Reach.Allow == nil {
		for _, to := range trace.Away(from) {
			list = append(list, netip.AddrPortFrom(to, port))
		}
		return list
	}
	for _, text := range *a.Reach.Allow {
		e, err := reach.Parse(text)
		if isTCP := e.Ports.Protocols == 0 || e.Ports.Protocols&reach.TCP != 0; err != nil || e.Name != "" || !isTCP {
			continue
		}
		to := e.Prefix.Addr()
		if !e.Prefix.IsSingleIP() {
			to = to.Next() // the first is the network's own
		}
		if to.Is4() == from.Is4() && trace.Leaves(to) {
			return append(list, netip.AddrPortFrom(to, cmp.Or(e.Ports.First, port)))
		}
	}
	return nil
}

// codeOf is the code of what trace says.
func codeOf(c *trace.Cause) *finding.Code {
	switch {
	case !c.IsByRule():
		return packetLost
	case c.Whose == trace.Docker:
		return dockerDrops
	case c.Whose == trace.UFW:
		return ufwDrops
	case c.Whose == trace.Firewalld:
		return firewalldNoZone
	}
	return forwardDrops
}
