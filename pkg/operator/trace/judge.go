package trace

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// judge says what became of the packet, and why it was lost if it was: the first thing that would have to change.
func (r *run) judge(request, answer []stage) (Outcome, *Cause) {
	if a := r.answered; a != nil {
		if c := r.ledElsewhere(request); c != nil {
			return Refused, c
		}
		if a.Packet.isReset() || a.Packet.isError() {
			if d := dropped(request); d != nil { // which has made the answer
				return Dropped, r.ofRule(*d, false)
			}
			return r.refusal(*a, request)
		}
		if last := lastOf(request); last.at != nil && last.at.isHost() && last.hook == "input" && r.isPublished() {
			return Answered, r.notPublished(request) // by another than it is published for
		}
		return Answered, nil
	}
	if a := r.astray; a != nil {
		return Dropped, r.pastHost(a.Packet)
	}
	for i, list := range [][]stage{request, answer} {
		if d := cmp.Or(dropped(list), queued(list)); d != nil {
			return Dropped, r.ofRule(*d, i == 1)
		}
	}
	for _, p := range r.places() {
		for _, e := range r.discovery(p) {
			if e.drops() && r.concerns(e) {
				return Dropped, r.ofRule(stage{Event: e, at: p}, false)
			}
		}
	}
	if r.isLed(request) {
		return Left, nil
	}
	if s := kept(request); s != nil {
		if r.Imitated {
			return Left, r.unmasked(*s, request)
		}
		if c := r.ledElsewhere(request); c != nil {
			return Dropped, c
		}
		return Dropped, hostNoRoute.cause(Administrator, finding.Say(`let the host be the gateway of the container's network ("isGateway"), or give it a route there`),
			"the host sends what is for %s out by %s: it has no other route there", s.Packet.To, s.at.linkName(s.Out))
	}
	if answer != nil {
		return Dropped, r.lost(answer, true)
	}
	last := lastOf(request)
	switch {
	case last.at == nil:
		return Dropped, r.unsent()
	case r.hasLeft(last):
		return r.outside(last)
	case last.hook == "input" && last.done && (last.at == r.target || last.at.isHost() && r.target == nil || last.at == r.source):
		return r.silence(last)
	}
	return Dropped, r.lost(request, false)
}

// isLed reports whether a rule has led a packet that would have left the node to somebody on it: itself, a container, or who is said to have sent it.
func (r *run) isLed(request []stage) bool {
	s := kept(request)
	switch {
	case !r.Imitated:
		return false
	case s == nil:
		return r.ledBack(lastOf(request)) != nil
	case s.Packet.To == r.flow.To:
		return false
	}
	uplinks, _ := r.Host.Uplinks()
	return s.hook == "input" || !slices.ContainsFunc(uplinks, func(l *node.Link) bool { return l.Link.Attrs().Index == s.Out })
}

// ofRule is the cause if a rule or a policy drops the packet.
func (r *run) ofRule(d stage, answer bool) *Cause {
	what := "it"
	switch {
	case d.Packet.About.IsValid():
		what = fmt.Sprintf("the question who has %s", d.Packet.About)
	case answer:
		what = "the answer"
	}
	rule := r.ruleText(d.at, d.Event)
	text := ""
	if rule != "" {
		text = ": " + rule
	}
	owner := ownerOf(d.Table, d.Chain)
	switch {
	case !d.at.isHost():
		return guestDrops.cause(Guest, finding.Say("it is the container's own rule: change it in there, or in what makes it"), "inside of %s %s drops %s%s", d.at, d.Event, what, text)
	case owner == Ours && d.Table == "cnibox-egress" && !r.isForged(d):
		return listCloses.cause(Ours, r.openList(d), "the list of network %s (plugin egress) does not contain %s: %s drops %s%s", r.networkOf(d), d.Packet.target(), d.Event, what, text)
	case owner == Ours && (d.Table == "cnibox-egress" || d.Family == bridgeFamily):
		return senderForged.cause(Ours, finding.Say("let the container send from the address and the link address that the network has given it"),
			"%s came with the source %s, which is not the container's own address there: %s drops it%s", what, d.Packet.From, d.Event, text)
	case d.Verdict == Queue:
		return waits.cause(owner, finding.Say("start the program that reads the queue, or add bypass to the rule"), "%s hands %s to a program, which does not give it back%s", d.Event, what, text)
	case d.Rule == 0:
		owner = ownerOfPolicy(d.Table, d.Chain, chainsIn(d.Family, d.Table))
		return policyDrops.cause(owner, r.accept(d, owner), "%s drops %s: none of its rules accepts it, and its policy is drop", d.Event, what)
	}
	return ruleDrops.cause(owner, r.accept(d, owner), "%s drops %s%s", d.Event, what, text)
}

// isForged reports whether a packet came from an address that is no container's at the link.
func (r *run) isForged(d stage) bool {
	if !d.Packet.About.IsValid() && !strings.HasSuffix(d.hook, "prerouting") || d.Packet.From.IsLinkLocalUnicast() || d.Packet.From.IsUnspecified() {
		return false
	}
	for _, c := range []*Container{r.Source, r.Target} {
		if c == nil {
			continue
		}
		for _, a := range c.Attachments {
			if slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr() == d.Packet.From }) {
				return false
			}
		}
	}
	return true
}

// networkOf names the network whose list judges a packet.
func (r *run) networkOf(d stage) string {
	for _, c := range []*Container{r.Source, r.Target} {
		if c == nil {
			continue
		}
		for _, a := range c.Attachments {
			for _, p := range a.Addresses {
				if p.Addr() == d.Packet.From || len(c.Attachments) == 1 {
					return a.Network
				}
			}
		}
	}
	return "?"
}

func (r *run) openList(d stage) finding.Remedy {
	entry := d.Packet.target()
	if n := protocolName(d.Packet); d.Packet.ToPort != 0 && !d.Packet.isPing() && n != "" {
		entry += "/" + n
	}
	if d.Family == bridgeFamily {
		return finding.Say(`neighbours on one bridge are one destination: add the network's whole subnet to "allow" of network %s if containers of it may reach each other, and start the container again`, r.networkOf(d))
	}
	return finding.Say(`if it may be reached: add "%s" to "allow" of the plugin egress in network %s (or take it out of "deny"), and start the container again`, entry, r.networkOf(d))
}

// pastHost is the cause if an answer has another sender than the one that was asked: a rule of the host has led the packet there, and the answer did not pass
// the host.
func (r *run) pastHost(answer Header) *Cause {
	key := "net.bridge.bridge-nf-call-iptables"
	if answer.From.Is6() {
		key = "net.bridge.bridge-nf-call-ip6tables"
	}
	remedy := finding.Say("masquerade these packets on the host, so that their answers come back to it")
	if value, err := sysctl.Get(strings.ReplaceAll(key, ".", "/")); r.from.bridge != nil && (err != nil || value == "0") {
		remedy = finding.Steps(finding.Run("sysctl", "-w", key+"=1"), finding.Say("which needs br_netfilter (modprobe br_netfilter); or masquerade what goes back into %s", r.from.bridge.Attrs().Name))
	}
	return pastHost.cause(r.ownerOfChange(), remedy, "a rule leads it to %s, which answers %s directly, past the host: the answer is not from %s, and is not taken", answer.From, r.source, r.flow.To)
}

// refusal is the cause if somebody answers that he does not take the packet.
func (r *run) refusal(a Event, request []stage) (Outcome, *Cause) {
	last := lastOf(request)
	isEnd := last.hook == "input" && last.done
	switch {
	case a.Packet.isReset() && isEnd && last.at.isHost() && r.isPublished():
		return Refused, r.notPublished(request)
	case a.Packet.isReset() && isEnd:
		return Refused, refused.cause(r.endOwner(last), finding.Say("start what should listen there, and let it listen at all addresses rather than at 127.0.0.1"),
			"nothing in %s listens at %s/%s", last.at, last.Packet.target(), r.flow.Protocol)
	case a.Packet.isReset():
		return Refused, refused.cause(Outside, finding.Say("start what should listen there"), "%s refuses the connection", a.Packet.From)
	}
	what := errorText(a.Packet)
	if isEnd {
		if last.at.isHost() && r.isPublished() {
			return Refused, r.notPublished(request)
		}
		return Refused, refused.cause(r.endOwner(last), finding.Say("start what should listen there"), "nothing in %s listens at %s/%s (%s)", last.at, last.Packet.target(), r.flow.Protocol, what)
	}
	if a.Packet.From.IsValid() && r.isLocal(a.Packet.From) {
		return Dropped, r.lost(request, false)
	}
	return Refused, told.cause(Outside, finding.Say("ask who runs %s", a.Packet.From), "%s answered that it can't deliver what is for %s: %s", a.Packet.From, r.flow.To, what)
}

func (r *run) endOwner(last stage) Owner {
	if last.at.isHost() {
		return Administrator
	}
	return Guest
}

func (r *run) isLocal(a netip.Addr) bool {
	to := routeOf(a, netip.Addr{}, 0, 0)
	return to.err == nil && to.local
}

// errorText is what an error by ICMP says.
func errorText(h Header) string {
	if h.Protocol == 58 {
		return map[byte]string{1: "unreachable", 2: "too large", 3: "too many hops", 4: "not understood"}[h.Type] + fmt.Sprintf(" (type %d, code %d)", h.Type, h.Code)
	}
	codes := map[byte]string{0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable", 4: "too large", 9: "network prohibited", 10: "host prohibited", 13: "prohibited by a filter"}
	if text := codes[h.Code]; h.Type == 3 && text != "" {
		return text
	}
	return fmt.Sprintf("type %d, code %d", h.Type, h.Code)
}

// unsent is the cause if nothing was seen at all.
func (r *run) unsent() *Cause {
	from := r.source
	route := from.route(r.flow.To, netip.Addr{}, 0, 0)
	stop := ""
	_ = from.do(func() error { stop = node.StopsAt(r.flow.To, r.flow.From, "", 0); return nil })
	owner := Administrator
	if !from.isHost() {
		owner = Guest
	}
	if r.inject != nil && r.Imitated {
		if c := r.downLink(r.host, r.inject.to.Attrs().Index); c != nil {
			return c
		}
	}
	switch {
	case r.inject != nil && r.inject.isUp():
		name := r.inject.to.Attrs().Name
		return hookDrops.cause(Kernel, finding.Say("tc filter show dev %s ingress, and ip -d link show %s for XDP may say more", name, name), "the packet was lost at %s, before the packet filter's first hook", name)
	case r.inject != nil:
		return linkDown.cause(Administrator, finding.Run("ip", "link", "set", r.inject.to.Attrs().Name, "up"), "the packet did not come in by %s: it is down", r.inject.to.Attrs().Name)
	case route.err != nil && stop != "":
		return routeStops.cause(owner, finding.Say("take it away in %s if nobody needs it: ip rule, ip route show table all", from), "in %s %s leads what is for %s nowhere", from, stop, r.flow.To)
	case route.err != nil && from.isHost():
		return hostNoRoute.cause(owner, finding.Say("give the node a route to %s", r.flow.To), "the node has no route to %s", r.flow.To)
	case route.err != nil:
		return noRoute.cause(Ours, finding.Say("give the network routes (isDefaultGateway, or routes of its ipam), and start the container again"), "%s has no route to %s", from, r.flow.To)
	case errors.Is(r.sent, syscall.EMSGSIZE):
		return tooLarge.cause(Ours, finding.Say(`set a smaller packet, or a larger "mtu" in the network`), "the packet has %d bytes, and the link of %s takes %d", r.Size, from, route.mtu)
	case r.sent != nil:
		return notSent.cause(Kernel, nil, "the kernel did not send it in %s: %v", from, r.sent)
	}
	return r.unresolved(from, r.flow.To, r.flow.From)
}
