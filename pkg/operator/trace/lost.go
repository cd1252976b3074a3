package trace

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// lost is the cause if a packet was seen, and then not any more, and nobody says that he has dropped it: what lies behind the last place at which
// it was seen.
func (r *run) lost(list []stage, answer bool) *Cause {
	last := lastOf(list)
	what := "it"
	if answer {
		what = "the answer"
	}
	if last.at == nil {
		return hookDrops.cause(Kernel, nil, "%s was seen at none of the packet filter's hooks", what)
	}
	if c := r.ledBack(last); c != nil && !answer {
		return c
	}
	_, which := last.point()
	receiver := r.target
	if answer {
		receiver = r.source
	}
	switch {
	case which == begin || which == tracked:
		return r.atHook(last, what, which)
	case last.hook == "prerouting", last.hook == "netdev ingress" && r.isBridge(last.In): // behind br_netfilter, which had it pass prerouting before
		return r.unrouted(last, what)
	case last.hook == "netdev ingress" || last.hook == "bridge prerouting" || last.hook == "bridge input":
		return r.behindLink(last, what)
	case last.hook == "input":
		return silent.cause(r.endOwner(last), finding.Say("look at the program that has asked"), "%s has come to %s, and its socket did not take it", what, last.at)
	case last.hook == "forward" || last.hook == "output":
		return r.unrouted(last, what)
	}
	// It has left the host, or a container, by a link.
	if last.at.isHost() && receiver != nil && !receiver.isHost() {
		if c := r.beforeContainer(last, receiver, what, answer); c != nil {
			return c
		}
	}
	return r.unresolved(last.at, last.Packet.To, last.Packet.From)
}

// ledBack is the cause if a rule of the host leads a packet to its own sender, which takes none from himself.
func (r *run) ledBack(last stage) *Cause {
	if last.at == nil || !last.at.isHost() || r.Source == nil || r.Target == r.Source || last.Packet.To == r.flow.To || !r.hasAddress(r.Source, last.Packet.To) {
		return nil
	}
	return elsewhere.cause(r.ownerOfChange(), finding.Say("leave packets from %s out of that rule", r.Source.Name), "a rule leads it back to %s itself", r.Source.Name)
}

func (r *run) isBridge(index int) bool {
	for _, w := range []way{r.from, r.to} {
		if w.bridge != nil && w.bridge.Attrs().Index == index {
			return true
		}
	}
	return false
}

// atHook is the cause if the packet came to a hook, and not behind it, and no rule of nf_tables says so.
func (r *run) atHook(last stage, what, which string) *Cause {
	if c := r.untrackable(last, which); c != nil {
		return c
	}
	if !last.at.isHost() {
		return guestDrops.cause(Guest, finding.Say("look inside: iptables-legacy -L -v in the container's namespace counts what it drops"), "inside of %s, at hook %s, %s was dropped, and not by nf_tables", last.at, last.hook, what)
	}
	if c := r.byLegacy(last, what); c != nil {
		return c
	}
	if last.hook == "output" && last.Packet.From.IsLoopback() && r.to.bridge != nil {
		key := "net.ipv4.conf." + r.to.bridge.Attrs().Name + ".route_localnet"
		return localnetOff.cause(Administrator, finding.Run("sysctl", "-w", key+"=1"), "the kernel sends nothing from %s by %s: %s is 0", last.Packet.From, r.to.bridge.Attrs().Name, key)
	}
	return hookDrops.cause(Kernel, finding.Say("bpftool net and the kernel's log may say more"), "%s was dropped at hook %s, and neither a rule of nf_tables nor one of iptables-legacy says so", what, last.hook)
}

// untrackable is the cause if there was no room for another connection. Each namespace has a table, and all have one limit.
func (r *run) untrackable(last stage, which string) *Cause {
	before, after := r.before.tracked[last.at], r.after.tracked[last.at]
	if which != begin || after.Dropped == before.Dropped && !after.IsFull() {
		return nil
	}
	of := "the node's own table of connections"
	if !last.at.isHost() {
		of = fmt.Sprintf("the table of connections of %s", last.at)
	}
	return trackerFull.cause(Administrator, MoreConnections(after.Tracked, r.after.tracked[r.host]),
		"%s is full: %d are in it, and net.netfilter.nf_conntrack_max is %d. The kernel drops what begins another one (nf_conntrack: table full, dropping packet)", of, after.Tracked, after.Most)
}

// MoreConnections is the remedy if a namespace tracks as many connections as the node lets each.
func MoreConnections(tracked int, ofNode node.Connections) finding.Remedy {
	const usual = 65536
	value := fmt.Sprintf("net.netfilter.nf_conntrack_max=%d", max(2*tracked, 2*ofNode.Most, usual))
	if ofNode.IsFixed {
		return finding.Say("this node is a container itself: its machine sets it, with sysctl -w %s", value)
	}
	return finding.Steps(finding.Run("sysctl", "-w", value), finding.Say("and in /etc/sysctl.d, so that it stays; conntrack -L shows who has so many connections"))
}

// byLegacy is the cause if a rule of iptables-legacy has counted the packet.
func (r *run) byLegacy(last stage, what string) *Cause {
	name := "iptables-legacy"
	if r.flow.is6() {
		name = "ip6tables-legacy"
	}
	for _, c := range r.after.since(r.before) {
		if c.program != name || strings.Contains(c.rule, "NOTRACK") || strings.Contains(c.rule, "--notrack") {
			continue
		}
		into := c.chain
		if c.owner == Docker {
			into = "DOCKER-USER"
		}
		remedy := r.accepting(last, iptablesWords, name, "-t", c.table, "-I", into)
		if c.rule == "" {
			return legacyDrops.cause(c.owner, append(remedy, r.firewallPlugin()...), "chain %s of %s drops %s: none of its rules accepts it, and its policy is drop", c.chain, name, what)
		}
		return legacyDrops.cause(c.owner, append(remedy, r.forAll()...), "a rule in chain %s of table %s of %s drops %s: %s", c.chain, c.table, name, what, c.rule)
	}
	return nil
}

// unrouted is the cause if the kernel did not route a packet that the packet filter has let pass.
func (r *run) unrouted(last stage, what string) *Cause {
	p, at := last.Packet, last.at
	in := last.In
	if last.hook == "output" {
		in = 0
	}
	inName := at.linkName(in)
	route := at.route(p.To, p.From, in, last.Mark)
	stop := ""
	_ = at.do(func() error { stop = node.StopsAt(p.To, p.From, inName, last.Mark); return nil })
	key, owner := "net/ipv4/ip_forward", Administrator
	if p.To.Is6() {
		key = "net/ipv6/conf/all/forwarding"
	}
	if !at.isHost() {
		owner = Guest
	}
	off := func(key string) (is bool) {
		_ = at.do(func() error { v, err := sysctl.Get(key); is = err == nil && v == "0"; return err })
		return is
	}
	if of := "net/ipv4/conf/" + inName + "/forwarding"; !off(key) && p.To.Is4() && in != 0 && off(of) {
		key = of
	}
	switch {
	case route.err == nil && route.local && last.hook == "prerouting" && !p.To.IsLoopback():
		return hookDrops.cause(Kernel, nil, "%s is for %s itself, and was lost before hook input", what, at)
	case !at.isHost() && !r.has(at, p.To):
		return elsewhere.cause(Administrator, finding.Say("%s does not have the address: cnictl repair puts addresses back", at), "%s came to %s, which does not have the address %s", what, at, p.To)
	case off(key) && in != 0 && at.isHost() && !r.isLocal(p.To):
		return forwardOff.cause(Administrator, finding.Steps(finding.Run("sysctl", "-w", strings.ReplaceAll(key, "/", ".")+"=1"), finding.Say("and in /etc/sysctl.d, so that it stays")),
			"the host does not forward packets: %s is 0", strings.ReplaceAll(key, "/", "."))
	case r.isReversePath(at, route, inName, p):
		return reversePath.cause(Administrator, finding.Run("sysctl", "-w", "net.ipv4.conf."+inName+".rp_filter=2"),
			"the kernel drops %s as it comes in by %s: its answer to %s would go %s, and rp_filter is 1 (strict)", what, inName, p.From, at.route(p.From, netip.Addr{}, 0, 0))
	case route.err != nil && stop != "":
		return routeStops.cause(owner, finding.Say("take it away if nobody needs it, or put a more special one before it for %s", p.To), "%s leads what is for %s nowhere", stop, p.To)
	case r.Size > 0 && route.mtu > 0 && r.Size > route.mtu:
		return r.tooLarge(route.name, route.mtu)
	case route.err != nil:
		return hostNoRoute.cause(owner, finding.Say("give the node a route to %s: ip route", p.To), "%s has no route to %s: %v", at, p.To, route.err)
	}
	return hookDrops.cause(Kernel, nil, "%s has passed hook %s, and the kernel did not send it on %s", what, last.hook, route)
}

// has reports whether a place has an address.
func (r *run) has(at *place, a netip.Addr) bool {
	to := at.route(a, netip.Addr{}, 0, 0)
	return to.err == nil && to.local
}

// isReversePath reports whether the kernel has refused the packet for its source. It counts that.
func (r *run) isReversePath(at *place, route route, in string, p Header) bool {
	if at.isHost() && r.after.reversePath > r.before.reversePath {
		return true
	}
	if at.isHost() || p.To.Is6() {
		return false
	}
	strict := false
	_ = at.do(func() error {
		for _, key := range []string{"all", in} {
			v, err := sysctl.Get("net/ipv4/conf/" + key + "/rp_filter")
			strict = strict || err == nil && v == "1"
		}
		return nil
	})
	return strict && route.err != nil
}

func (r *run) tooLarge(link string, mtu int) *Cause {
	return tooLarge.cause(Administrator, finding.Say(`set "mtu": %d in the network, or raise that of %s`, mtu, link), "%s takes packets of %d bytes at most, and this one has %d", link, mtu, r.Size)
}

// behindLink is the cause if a packet came in by a link of the host, and went no farther.
func (r *run) behindLink(last stage, what string) *Cause {
	l := last.at.link(last.In)
	if l == nil {
		return linkDown.cause(Kernel, nil, "link %d, by which %s came in, is gone", last.In, what)
	}
	name := l.Attrs().Name
	for _, w := range []way{r.from, r.to} {
		if w.hostEnd == nil || w.hostEnd.Attrs().Index != last.In {
			continue
		}
		switch c := r.bridgeOf(w, what); {
		case c != nil:
			return c
		case w.bridge != nil && r.Size > w.bridge.Attrs().MTU:
			return r.tooLarge(w.bridge.Attrs().Name, w.bridge.Attrs().MTU)
		}
	}
	if last.hook == "bridge prerouting" {
		for _, w := range []way{r.to, r.from} {
			if w.hostEnd != nil && w.hostEnd.Attrs().Index != last.In {
				if c := r.betweenPorts(last, w, what); c != nil {
					return c
				}
			}
		}
	}
	return hookDrops.cause(Kernel, finding.Say("tc filter show dev %s ingress, bridge link and bridge vlan may say more", name), "%s came in by %s, and the kernel did not take it further", what, name)
}

// bridgeOf looks what is wrong between a host end and its bridge.
func (r *run) bridgeOf(w way, what string) *Cause {
	end, err := netlink.LinkByIndex(w.hostEnd.Attrs().Index)
	if err != nil {
		return linkDown.cause(Administrator, finding.Run("cnictl", "repair"), "%s is gone", w.hostEnd.Attrs().Name)
	}
	name := end.Attrs().Name
	a := r.attachmentAt(name)
	if end.Attrs().MasterIndex == 0 {
		if a != "" && r.bridgeName(name) != "" {
			return notAPort.cause(Administrator, finding.Run("ip", "link", "set", name, "master", r.bridgeName(name)), "%s came in by %s, which is not a port of %s", what, name, r.bridgeName(name))
		}
		return nil
	}
	master, err := netlink.LinkByIndex(end.Attrs().MasterIndex)
	if err == nil && master.Attrs().Flags&net.FlagUp == 0 {
		return linkDown.cause(Administrator, finding.Run("ip", "link", "set", master.Attrs().Name, "up"), "%s is down", master.Attrs().Name)
	}
	if state := portState(name); state != "" && state != "3" { // BR_STATE_FORWARDING
		return blocked.cause(Administrator, finding.Run("bridge", "link", "set", "dev", name, "state", "3"), "the bridge does not forward what comes by %s: its state is %s", name, portStates[state])
	}
	return nil
}

var portStates = map[string]string{"0": "disabled", "1": "listening", "2": "learning", "4": "blocking"}

func portState(name string) string {
	text, _ := os.ReadFile("/sys/class/net/" + name + "/brport/state")
	return strings.TrimSpace(string(text))
}

// attachmentAt names the attachment with a host end.
func (r *run) attachmentAt(hostEnd string) string {
	for _, c := range []*Container{r.Source, r.Target} {
		if c == nil {
			continue
		}
		for _, a := range c.Attachments {
			if a.HostEnd != nil && a.HostEnd.Name == hostEnd {
				return a.Owner
			}
		}
	}
	return ""
}

// bridgeName is the bridge that ADD reported of a host end's attachment, "" if it was none.
func (r *run) bridgeName(hostEnd string) string {
	for _, c := range []*Container{r.Source, r.Target} {
		if c == nil {
			continue
		}
		for _, a := range c.Attachments {
			if a.HostEnd == nil || a.HostEnd.Name != hostEnd || a.Result == nil || a.Result.Result == nil {
				continue
			}
			for _, i := range a.Result.Result.Interfaces {
				if l, err := netlink.LinkByName(i.Name); i.Sandbox == "" && err == nil && l.Type() == link.KindBridge {
					return i.Name
				}
			}
		}
	}
	return ""
}
