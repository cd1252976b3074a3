package trace

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// hasLeft reports whether the last that was seen of a packet is that it left the node.
func (r *run) hasLeft(last stage) bool {
	if !strings.HasSuffix(last.hook, "postrouting") || !last.done {
		return false
	}
	if !last.at.isHost() {
		return r.from.parent != nil // by a macvlan or its like, past the host
	}
	for _, w := range []way{r.from, r.to} {
		for _, l := range []netlink.Link{w.hostEnd, w.bridge} {
			if l != nil && l.Attrs().Index == last.Out {
				return false
			}
		}
	}
	isFor := r.Target != nil && r.hasAddress(r.Target, last.Packet.To) // a bridge may send it to all of its ports
	return !isFor && !r.isLocal(last.Packet.To)
}

// outside says what became of a packet that left the node, and to which nothing came back.
func (r *run) outside(last stage) (Outcome, *Cause) {
	p := last.Packet
	route := last.at.route(p.To, netip.Addr{}, 0, last.Mark)
	hop := p.To
	if route.next.IsValid() {
		hop = route.next
	}
	state := netlink.NUD_NONE
	_ = last.at.do(func() error { state = neighbour(route.link, hop); return nil })
	if c := r.downLink(last.at, route.link); c != nil {
		return Dropped, c
	}
	request := r.request()
	if c := r.ledElsewhere(request); c != nil {
		return Left, c
	}
	own := r.unmasked(last, request)
	switch {
	case isUnknown(state):
		return Dropped, nobodyHas.cause(Outside, finding.Say("correct the address, or the gateway: nobody has it"), "nobody beyond %s says that he has %s", route.name, hop)
	case own != nil:
		return Left, own
	case r.Size > 0:
		return Left, tooLarge.cause(Outside, finding.Say(`try a smaller --size; if that passes, set a smaller "mtu" in the network`), "it left by %s, and nothing came back: %d bytes may be too large for the way, on which somebody should have said so", route.name, r.Size)
	case r.flow.Protocol == UDP:
		return Left, nil
	}
	return Left, leftNode.cause(Outside, finding.Say("look at %s and at what is on the way to it: this node has done its part", p.To), "it left by %s to %s, and nothing came back", last.at.linkName(last.Out), hop)
}

// unmasked is the cause if a packet goes out with the container's own address, nil if it does not, or if that is as it should be.
func (r *run) unmasked(last stage, request []stage) *Cause {
	p, isMasked := last.Packet, r.isMasked()
	by := fmt.Sprintf("it leaves by %s with the container's own address %s", last.at.linkName(last.Out), p.From)
	switch {
	case !r.isContainers(p.From) || r.Imitated && (!isMasked || last.hook == "input"):
		return nil
	case hasEntered(request, "untracked"):
		return r.ofUntracked(request, by)
	case !last.at.isHost() || r.Source == nil || !r.isPrivate(p.From):
		return nil
	case isMasked && r.isDormant():
		return dormant.cause(Administrator, finding.Run("nft", "add", "table", "inet", "cnibox"), "table inet cnibox is switched off (dormant): nothing is masqueraded, and %s", by)
	case isMasked:
		return notMasked.cause(Administrator, finding.Run("cnictl", "repair", r.Source.Attachments[0].Network), "%s, to which others may know no way back", by)
	}
	return notMasked.cause(Administrator, finding.Say(`set "ipMasq": true in the network, or give others a route to it`), "%s, to which others may know no way back", by)
}

func (r *run) isContainers(a netip.Addr) bool {
	for _, c := range []*Container{r.Source, r.Target} {
		for i := 0; c != nil && i < len(c.Attachments); i++ {
			if slices.ContainsFunc(c.Attachments[i].Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
				return true
			}
		}
	}
	return r.Source != nil && a == r.flow.From
}

// isPrivate reports whether an address is known only here, as far as that can be told.
func (r *run) isPrivate(a netip.Addr) bool { return a.IsPrivate() || a.IsLinkLocalUnicast() }

// isMasked reports whether the sender's network masquerades.
func (r *run) isMasked() bool {
	return r.Source != nil && slices.ContainsFunc(r.Source.Attachments, func(a *node.Attachment) bool {
		return slices.ContainsFunc(r.parts(a), func(p *netconf.Part) bool { return p.IsOn("ipMasq") })
	})
}

// parts are those of the configuration that an attachment's ADD had.
func (r *run) parts(a *node.Attachment) []*netconf.Part {
	if a.Result == nil {
		return nil
	}
	l, err := netconf.Parse("", a.Result.Config, r.Plugins.Find)
	if err != nil {
		return nil
	}
	return l.All()
}

// isDormant reports whether our table is there, and switched off.
func (r *run) isDormant() bool {
	conn, err := nftables.New()
	if err != nil {
		return false
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	const off = 1 // NFT_TABLE_F_DORMANT. The library has the flags in the other byte order
	return err == nil && slices.ContainsFunc(tables, func(t *nftables.Table) bool {
		return t.Name == "cnibox" && bits.ReverseBytes32(t.Flags)&off != 0
	})
}

// ofUntracked is the cause if the tracking of connections lets the packet alone: the rule that says so was seen before.
func (r *run) ofUntracked(list []stage, so string) *Cause {
	for _, s := range list {
		if s.own || s.Rule == 0 {
			continue
		}
		if text := r.ruleText(s.at, s.Event); strings.Contains(text, "notrack") || strings.Contains(text, "CT") {
			owner := ownerOf(s.Table, s.Chain)
			return untracked.cause(owner, finding.Say("leave packets from %s to %s out of that rule", s.Packet.From, s.Packet.To), "%s takes it out of connection tracking (%s): %s", s.Event, text, so)
		}
	}
	for _, c := range r.after.since(r.before) {
		if strings.Contains(c.rule, "NOTRACK") || strings.Contains(c.rule, "--notrack") {
			return untracked.cause(c.owner, finding.Say("leave these packets out of that rule"), "a rule in chain %s of table %s of %s takes it out of connection tracking (%s): %s", c.chain, c.table, c.program, c.rule, so)
		}
	}
	return untracked.cause(Administrator, finding.Say("look for rules that say notrack"), "a rule takes it out of connection tracking (notrack): %s", so)
}

// silence says what became of a packet that came to its end and was not answered.
func (r *run) silence(last stage) (Outcome, *Cause) {
	if last.at.isHost() && r.isPublished() {
		return Dropped, r.notPublished(r.request())
	}
	back := last.at.route(last.Packet.From, netip.Addr{}, 0, 0)
	switch {
	case back.err != nil:
		return Dropped, noWayBack.cause(Ours, finding.Say(`give the network routes (isDefaultGateway, or routes of its ipam), or let portmap masquerade: "snat": true`), "%s has no route back to %s", last.at, last.Packet.From)
	case r.flow.Protocol == UDP:
		return Arrived, nil
	case r.flow.Protocol == Ping:
		return Dropped, silent.cause(r.endOwner(last), finding.Say("see net.ipv4.icmp_echo_ignore_all in %s", last.at), "it has come to %s, which answers no pings", last.at)
	case last.at.isHost() && r.source.isHost():
		return Dropped, silent.cause(Administrator, finding.Say("see with ss -ltn whether the program's queue of connections is full"), "it has come to the node's socket, and was not answered")
	}
	if c := r.unansweredIn(last); c != nil {
		return Dropped, c
	}
	return Dropped, silent.cause(r.endOwner(last), finding.Say("see with ss -ltn in %s whether the program's queue of connections is full", last.at), "it has come to the socket in %s, and was not answered", last.at)
}

// unansweredIn looks whether the answer waits in the container for the link address of who is next.
func (r *run) unansweredIn(last stage) *Cause {
	back := last.at.route(last.Packet.From, netip.Addr{}, 0, 0)
	hop := last.Packet.From
	if back.next.IsValid() {
		hop = back.next
	}
	state := netlink.NUD_NONE
	_ = last.at.do(func() error { state = neighbour(back.link, hop); return nil })
	if isUnknown(state) {
		return r.unresolved(last.at, last.Packet.From, last.Packet.To)
	}
	return nil
}

// isPublished reports whether the packet asks a container by a port of the node.
func (r *run) isPublished() bool { return r.Target != nil && r.isLocal(r.flow.To) }

// notPublished is the cause if a packet for a published port came to the node itself.
func (r *run) notPublished(request []stage) *Cause {
	port := fmt.Sprintf("%d/%s", r.flow.ToPort, r.flow.Protocol)
	network := ""
	if len(r.Target.Attachments) > 0 {
		network = r.Target.Attachments[0].Network
	}
	switch who := r.listener(); {
	case hasEntered(request, "untracked"):
		return r.ofUntracked(request, "port "+port+" is not led to a container")
	case r.isDormant():
		return dormant.cause(Administrator, finding.Run("nft", "add", "table", "inet", "cnibox"), "table inet cnibox is switched off (dormant): port %s is not led to a container", port)
	case who != "":
		return notPublished.cause(Administrator, finding.Steps(finding.Say("%s has the port: end it, or publish another one", who), finding.Run("cnictl", "repair", network)), "no rule leads port %s to %s: %s answers on the node", port, r.Target.Name, who)
	}
	return notPublished.cause(Administrator, finding.Run("cnictl", "repair", network), "no rule leads port %s of the node to %s: the port map is gone, and nothing on the node listens there", port, r.Target.Name)
}

// listener names the process of the node that listens at the port, such as a proxy, "" if none does.
func (r *run) listener() string {
	if r.flow.Protocol == Ping {
		return ""
	}
	const listening = "0A"
	for _, table := range []string{string(r.flow.Protocol), string(r.flow.Protocol) + "6"} {
		text, _ := os.ReadFile("/proc/thread-self/net/" + table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", r.flow.ToPort)) && (f[3] == listening || r.flow.Protocol == UDP) {
				return r.processOf("socket:[" + f[9] + "]")
			}
		}
	}
	return ""
}

// processOf names the process that has a socket.
func (r *run) processOf(socket string) string {
	processes, _ := r.Host.Processes()
	for _, p := range processes {
		files, _ := os.ReadDir(p.Path("fd"))
		for _, f := range files {
			if to, err := os.Readlink(p.Path("fd", f.Name())); err == nil && to == socket {
				return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
			}
		}
	}
	return "a process"
}

// downLink is the cause if a link is down, or what is at its other end.
func (r *run) downLink(at *place, index int) *Cause {
	l := at.link(index)
	if l == nil {
		return nil
	}
	a := l.Attrs()
	owner := Administrator
	if !at.isHost() {
		owner = Guest
	}
	switch {
	case a.Flags&net.FlagUp == 0:
		return linkDown.cause(owner, finding.Run("ip", "link", "set", a.Name, "up"), "%s of %s is down", a.Name, at)
	case a.OperState == netlink.OperDown || a.OperState == netlink.OperLowerLayerDown:
		return linkDown.cause(Administrator, finding.Say("set the other end up; ip -d link shows which it is"), "%s of %s has no carrier: what is at its other end is down", a.Name, at)
	}
	return nil
}

// unresolved is the cause if a packet left a place by a link, and was not seen behind it.
func (r *run) unresolved(at *place, to, from netip.Addr) *Cause {
	route := at.route(to, netip.Addr{}, 0, 0)
	hop := to
	if route.next.IsValid() {
		hop = route.next
	}
	if c := r.downLink(at, route.link); c != nil {
		return c
	}
	w := r.from
	if at == r.target {
		w = r.to
	}
	if !at.isHost() && w.hostEnd != nil {
		if c := r.bridgeOf(w, "it"); c != nil {
			return c
		}
		if other := r.to; at == r.source && other.hostEnd != nil && other.bridge != nil && w.bridge != nil && hop == to {
			if c := r.intoPort(other, w, "it"); c != nil {
				return c
			}
		}
	}
	state := netlink.NUD_NONE
	_ = at.do(func() error { state = neighbour(route.link, hop); return nil })
	isRouter := !at.isHost() && hop != to
	switch {
	case isUnknown(state) && isRouter && !r.isLocal(hop) && w.parent == nil:
		return nobodyHas.cause(Administrator, finding.Steps(finding.Run("cnictl", "repair"), finding.Say("if the host is no router here, name a gateway in the network that is there")), "%s asks in vain who has its gateway %s: the host does not have that address", at, hop)
	case isUnknown(state):
		return nobodyHas.cause(Outside, finding.Say("see whether it runs, and has the address; cnictl repair puts addresses back"), "%s asks in vain by %s who has %s", at, route.name, hop)
	}
	return hookDrops.cause(Kernel, finding.Say("tc filter show dev %s may say more", route.name), "it left %s by %s, and was not seen behind that", at, route.name)
}

// beforeContainer is the cause if a packet left the host, and did not come to the container for which it is.
func (r *run) beforeContainer(last stage, receiver *place, what string, answer bool) *Cause {
	w, other := r.to, r.from
	if answer {
		w, other = r.from, r.to
	}
	if w.hostEnd == nil {
		return nil
	}
	if c := r.intoPort(w, other, what); c != nil {
		return c
	}
	if c := r.ledElsewhere(r.request()); c != nil {
		return c
	}
	if isUnknown(neighbour(routeOf(last.Packet.To, netip.Addr{}, 0, 0).link, last.Packet.To)) {
		return nobodyHas.cause(Guest, finding.Say("see whether %s has the address, and answers: cnictl exec %s -- ip address", receiver, receiver), "the host asks in vain behind %s who has %s", w.hostEnd.Attrs().Name, last.Packet.To)
	}
	return nil
}

// ledElsewhere is the cause if a packet for a published port is not for its container any more.
func (r *run) ledElsewhere(request []stage) *Cause {
	last := lastOf(request)
	if !r.isPublished() || last.at == nil || r.isLocal(last.Packet.To) || r.hasAddress(r.Target, last.Packet.To) {
		return nil
	}
	return elsewhere.cause(r.ownerOfChange(), finding.Say("publish it at another port, or take the rule away that leads it there"), "a rule leads it to %s, and not to %s", last.Packet.target(), r.Target.Name)
}

func (r *run) hasAddress(c *Container, a netip.Addr) bool {
	for _, of := range c.Attachments {
		if slices.ContainsFunc(of.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}

// ownerOfChange is whose the rule is that has changed the packet's destination.
func (r *run) ownerOfChange() Owner {
	list := r.request()
	for i := 1; i < len(list); i++ {
		if list[i].at == list[i-1].at && list[i].Packet.To != list[i-1].Packet.To && !list[i-1].own {
			return ownerOf(list[i-1].Table, list[i-1].Chain)
		}
	}
	return Administrator
}

// intoPort looks why a bridge, or the host, does not send a packet into a container's link.
func (r *run) intoPort(w, other way, what string) *Cause {
	end, err := netlink.LinkByIndex(w.hostEnd.Attrs().Index)
	if err != nil {
		return linkDown.cause(Administrator, finding.Run("cnictl", "repair"), "%s is gone", w.hostEnd.Attrs().Name)
	}
	name := end.Attrs().Name
	if c := r.downLink(r.host, end.Attrs().Index); c != nil {
		return c
	}
	if c := r.bridgeOf(w, what); c != nil {
		return c
	}
	if r.Size > end.Attrs().MTU {
		return r.tooLarge(name, end.Attrs().MTU)
	}
	if other.hostEnd == nil || other.bridge == nil || w.bridge == nil {
		return nil
	}
	one, err := netlink.LinkGetProtinfo(other.hostEnd)
	two, err2 := netlink.LinkGetProtinfo(end)
	switch {
	case err != nil || err2 != nil:
	case other.hostEnd.Attrs().Index == end.Attrs().Index && !two.Hairpin:
		if calls, err := sysctl.Get("net/bridge/bridge-nf-call-iptables"); err == nil && calls == "1" {
			return hairpinOff.cause(Ours, finding.Say(`set "hairpinMode": true in the network, or now: bridge link set dev %s hairpin on`, name), "%s sends nothing back by %s, by which it came: hairpin is off", w.bridge.Attrs().Name, name)
		}
	case other.hostEnd.Attrs().Index != end.Attrs().Index && one.Isolated && two.Isolated:
		return isolated.cause(Ours, finding.Say(`leave "portIsolation" out of the network if containers of it may reach each other`), "%s and %s are isolated ports of %s, which keeps such apart", other.hostEnd.Attrs().Name, name, w.bridge.Attrs().Name)
	}
	return nil
}

// betweenPorts is the cause if a bridge did not hand a packet on to another port.
func (r *run) betweenPorts(_ stage, w way, what string) *Cause {
	other := r.from
	if other.hostEnd == w.hostEnd {
		other = r.to
	}
	return r.intoPort(w, other, what)
}
