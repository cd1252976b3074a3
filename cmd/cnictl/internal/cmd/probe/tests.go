package probe

import (
	"crypto/rand"
	"fmt"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

// protocol is how a test asks.
type protocol string

const (
	tcp  protocol = "TCP"
	udp  protocol = "UDP"
	echo protocol = "ping" // ICMP
)

// attempt is how a test is tried.
type attempt struct {
	protocol  protocol
	from      *Container // nil: the host
	reached   *Container // who answers; nil: the host, or somebody outside
	target    netip.AddrPort
	size      int    // of the whole packet, which is not to be fragmented; 0: a small one
	asksName  bool   // of a name server
	asksAgent bool   // whichever server it asks, as the container has names on its lists
	name      string // that it has to know; "": it has to answer
	question  []byte // what is sent
	answer    []byte // a part of what is answered
	source    uint16 // the port of the host from which it asks by TCP
	outside   bool   // it is let in as if somebody outside had sent it
	err       error  // why it failed, as far as the kernel said
	lost      *Loss  // what a trace said of it
}

// tests returns what to try, family by family.
func (w *subject) tests(o Options) (all []*Test) {
	for _, f := range families {
		if !w.a.address(f).IsValid() || !w.b.address(f).IsValid() {
			continue
		}
		of := append(w.eachOther(f), w.gateway(f))
		of = append(of, w.published(f)...)
		of = append(of, w.outside(f, o.Outside)...)
		of = append(of, w.largest(f, o.Outside)...)
		of = append(of, w.names(f, o)...)
		for _, t := range of {
			t.Family = f.name
		}
		all = append(all, of...)
	}
	return all
}

func newTest(name string, a attempt, to netip.Addr, port int) *Test {
	token := rand.Text()
	a.target = netip.AddrPortFrom(to, uint16(port))
	a.question, a.answer = []byte(questionMark+token), []byte(answerMark+token)
	t := &Test{Name: name, To: a.target.String(), Outcome: OK, attempt: a}
	if t.protocol == echo {
		t.To, t.answer = to.String(), t.question
	}
	return t
}

func notTried(name, why string) *Test { return &Test{Name: name, Outcome: NotTried, Note: why} }

func (w *subject) eachOther(f family) (all []*Test) {
	for _, p := range []protocol{tcp, udp} {
		for _, pair := range [][2]*Container{{w.a, w.b}, {w.b, w.a}} {
			name := fmt.Sprintf("%s to %s, %s", pair[0].Name, pair[1].Name, p)
			if why := w.secluded(); why != "" {
				all = append(all, notTried(name, why))
				continue
			}
			all = append(all, newTest(name, attempt{protocol: p, from: pair[0], reached: pair[1]}, pair[1].address(f), servedPort))
		}
	}
	return all
}

func (w *subject) gateway(f family) *Test {
	const name = "a to its gateway, ping"
	gateway := first(w.a.Gateways, f)
	if !gateway.IsValid() {
		return notTried(name, "not tried: the network gives no gateway")
	}
	if w.hasNoGateway() {
		return notTried(name, `not expected to work: the network's bridge is no gateway ("isGateway"), and its ipam names none`)
	}
	if gateway.IsLinkLocalUnicast() {
		gateway = gateway.WithZone(ifName)
	}
	return newTest(name, attempt{protocol: echo, from: w.a}, gateway, 0)
}

// published asks b's servers by the port of the host that leads to them.
func (w *subject) published(f family) (all []*Test) {
	if w.port == 0 {
		return []*Test{notTried("published port", "not tried: no plugin of the network publishes ports")}
	}
	if why := w.secludedFromHost(); why != "" {
		return []*Test{notTried("published port", why)}
	}
	host := w.hostAddress(f)
	for _, p := range []protocol{tcp, udp} {
		for _, by := range []struct {
			name string
			from *Container
			to   netip.Addr
		}{{"the host", nil, host}, {"the host's loopback", nil, f.loopback}, {"a", w.a, host}, {"b itself", w.b, host}} {
			name := fmt.Sprintf("published port, from %s, %s", by.name, p)
			why := ""
			switch {
			case by.to == netip.IPv6Loopback():
				why = "not expected to work: the kernel lets nothing leave from ::1"
			case by.from == w.b && w.noHairpin():
				why = `not expected to work: the network's bridge does not have "hairpinMode": true`
			case !by.to.IsValid():
				why = "not tried: the host has no address of this family"
			}
			if why != "" {
				all = append(all, notTried(name, why))
				continue
			}
			all = append(all, newTest(name, attempt{protocol: p, from: by.from, reached: w.b}, by.to, w.port))
		}
		name := fmt.Sprintf("published port, from outside, %s", p)
		if to := addressForOthers(f); to.IsValid() {
			all = append(all, newTest(name, attempt{protocol: p, reached: w.b, outside: true}, to, w.port))
		} else {
			all = append(all, notTried(name, "not tried: the host has no address of this family for others"))
		}
	}
	return all
}

// addressForOthers is where others outside find the host, which need not be by the network's gateway.
func addressForOthers(f family) netip.Addr {
	if to := trace.AddressOfNode(&node.Host{}, f.foreign); f.has(to) && trace.Stranger(&node.Host{}, to).IsValid() {
		return to
	}
	return netip.Addr{}
}

// hostAddress is where others find the host: the address that it uses itself for the outside, or else the network's gateway.
func (w *subject) hostAddress(f family) netip.Addr {
	if r := routeTo(f.foreign); r.from.IsValid() && !r.from.IsLoopback() {
		return r.from
	}
	if gateway := first(w.a.Gateways, f); routeTo(gateway).local {
		return gateway
	}
	return netip.Addr{}
}

func (w *subject) outside(f family, targets []netip.AddrPort) (all []*Test) {
	if targets == nil {
		return []*Test{notTried("a to the outside", "not tried: name an address with --to")}
	}
	for _, to := range targets {
		p := echo
		if to.Port() != 0 {
			p = tcp
		}
		if f.has(to.Addr()) {
			all = append(all, newTest(fmt.Sprintf("a to the outside, %s", p), attempt{protocol: p, from: w.a}, to.Addr(), int(to.Port())))
		}
	}
	return all
}

// largest sends packets of the size of the link's MTU, which nobody may fragment.
func (w *subject) largest(f family, targets []netip.AddrPort) (all []*Test) {
	const name = "largest packet, a to "
	if why := w.secluded(); why != "" {
		all = append(all, notTried(name+"b", why))
	} else {
		all = append(all, newTest(name+"b", attempt{protocol: echo, from: w.a, reached: w.b, size: w.a.MTU}, w.b.address(f), 0))
	}
	for _, to := range targets {
		if f.has(to.Addr()) && to.Port() == 0 {
			all = append(all, newTest(name+"the outside", attempt{protocol: echo, from: w.a, size: w.a.MTU}, to.Addr(), 0))
		}
	}
	return all
}

func (w *subject) names(f family, o Options) (all []*Test) {
	servers, asksAgent := w.a.Servers, w.hasNamesOnLists()
	switch {
	case o.Servers != nil:
		servers = o.Servers
	case servers == nil && asksAgent:
		servers = w.a.Gateways
	}
	if servers == nil {
		return []*Test{notTried("names", "not tried: the network names no servers; name some with --dns")}
	}
	const domain = 53
	for _, server := range servers {
		if f.has(server) {
			t := newTest(fmt.Sprintf("names, by %s", server), attempt{protocol: udp, from: w.a, asksName: true, asksAgent: asksAgent, name: o.Name}, server, domain)
			t.question, t.answer = query(o.Name)
			all = append(all, t)
		}
	}
	return all
}
