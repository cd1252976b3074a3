package trace

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// headerOfIP begins a packet from 10.88.0.2 to 192.0.2.254.
func headerOfIP(protocol byte) []byte {
	return []byte{0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 88, 0, 2, 192, 0, 2, 254}
}

func TestHeader(t *testing.T) {
	from, to := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("192.0.2.254")
	arp := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 88, 0, 2, 0, 0, 0, 0, 0, 0, 10, 88, 0, 1}
	ethernet := append(make([]byte, 12), 8, 6)
	v6 := append(append([]byte{0x60, 0, 0, 0, 0, 8, 58, 64}, netip.MustParseAddr("fd00:88::2").AsSlice()...), netip.MustParseAddr("2001:db8::1").AsSlice()...)
	asked := append(append([]byte{0x60, 0, 0, 0, 0, 24, 58, 255}, netip.MustParseAddr("fd00:88::2").AsSlice()...), netip.MustParseAddr("ff02::1:ff00:1").AsSlice()...)
	question := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr("fd00:88::1").AsSlice()[:12]...) // the kernel shows no more
	for name, c := range map[string]struct {
		family                   string
		link, network, transport []byte
		want                     Header
	}{
		"tcp":             {"inet", nil, headerOfIP(6), []byte{0x9c, 0x40, 1, 187, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2}, Header{From: from, To: to, Protocol: 6, FromPort: 40000, ToPort: 443, Flags: 2}},
		"cut off":         {"inet", nil, headerOfIP(6), []byte{0x9c}, Header{From: from, To: to, Protocol: 6}},
		"nothing":         {"inet", nil, nil, nil, Header{}},
		"ping":            {"netdev", nil, headerOfIP(1), []byte{8, 0, 0, 0, 0, 7, 0, 1}, Header{From: from, To: to, Protocol: 1, Type: 8, FromPort: 7, ToPort: 7}},
		"too large":       {"inet", nil, headerOfIP(1), []byte{3, 4, 0, 0, 0, 0, 5, 120}, Header{From: from, To: to, Protocol: 1, Type: 3, Code: 4, MTU: 1400}},
		"ping of IPv6":    {"inet", nil, v6, []byte{128, 0, 0, 0, 0, 7, 0, 1}, Header{From: netip.MustParseAddr("fd00:88::2"), To: netip.MustParseAddr("2001:db8::1"), Protocol: 58, Type: 128, FromPort: 7, ToPort: 7}},
		"ARP":             {"arp", nil, arp, nil, Header{From: netip.MustParseAddr("10.88.0.2"), About: netip.MustParseAddr("10.88.0.1"), Asks: true}},
		"IPv6's ARP":      {"inet", nil, asked, question, Header{From: netip.MustParseAddr("fd00:88::2"), To: netip.MustParseAddr("ff02::1:ff00:1"), Protocol: 58, Type: 135, About: netip.MustParseAddr("fd00:88::1"), Asks: true}},
		"its answer":      {"inet", nil, v6, append([]byte{136}, question[1:]...), Header{From: netip.MustParseAddr("fd00:88::2"), To: netip.MustParseAddr("2001:db8::1"), Protocol: 58, Type: 136, About: netip.MustParseAddr("fd00:88::2")}},
		"ARP on a bridge": {"bridge", ethernet, arp, nil, Header{From: netip.MustParseAddr("10.88.0.2"), About: netip.MustParseAddr("10.88.0.1"), Asks: true}},
	} {
		if got := headerOf(c.family, c.link, c.network, c.transport); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestParse reads what nf_tables says, and nothing else for it.
func TestParse(t *testing.T) {
	step := func(code uint32, policy bool) netlink.Message {
		m := message(unix.NFPROTO_IPV4, unix.NFT_MSG_TRACE, 0, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.NFTA_TRACE_TABLE, "filter")
			ae.String(unix.NFTA_TRACE_CHAIN, "FORWARD")
			if policy {
				ae.Uint32(unix.NFTA_TRACE_POLICY, code)
				return
			}
			ae.Uint64(unix.NFTA_TRACE_RULE_HANDLE, 5)
			ae.Nested(unix.NFTA_TRACE_VERDICT, func(ae *netlink.AttributeEncoder) error {
				ae.Uint32(unix.NFTA_VERDICT_CODE, code)
				return nil
			})
		})
		return m
	}
	const drop, queue, accept = 0, 5<<16 | 3, 1
	for _, test := range []struct {
		name    string
		m       netlink.Message
		dropped bool
		rule    uint64
	}{
		{"a rule that drops", step(drop, false), true, 5},
		{"a policy that drops", step(drop, true), true, 0},
		{"a rule that queues", step(queue, false), false, 5},
		{"a rule that accepts", step(accept, false), false, 5},
		{"a policy that accepts", step(accept, true), false, 0},
		{"another message", netlink.Message{Header: netlink.Header{Type: nftMessage(unix.NFT_MSG_NEWRULE)}, Data: step(drop, false).Data}, false, 0},
		{"nothing", netlink.Message{Header: netlink.Header{Type: nftMessage(unix.NFT_MSG_TRACE)}}, false, 0},
		{"garbage", netlink.Message{Header: netlink.Header{Type: nftMessage(unix.NFT_MSG_TRACE)}, Data: []byte{2, 0, 0, 0, 200, 0}}, false, 0},
	} {
		e, ok := parse(test.m)
		if (ok && e.drops()) != test.dropped || ok && e.Rule != test.rule || test.dropped && (e.Family != "ip" || e.Table != "filter" || e.Chain != "FORWARD") {
			t.Errorf("%s: %+v, %v", test.name, e, ok)
		}
	}
}

// TestQueued takes what was handed to a program for lost only if nothing was seen of it since.
func TestQueued(t *testing.T) {
	handed, on := stage{Event: Event{Verdict: Queue}}, stage{Event: Event{Verdict: Accept}}
	if queued([]stage{on, handed}) == nil || queued([]stage{on, handed, on}) != nil || queued(nil) != nil {
		t.Error("a program that gives packets back, or none, is not told from one that keeps them")
	}
}

// TestIsMine tells a flow's packets from those of another trace with the same ends, whatever the host makes of its port.
func TestIsMine(t *testing.T) {
	from, to, host := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("192.0.2.1")
	f, known, ports := Flow{From: from, To: to, Port: 61001, ToPort: 80}, map[uint32]bool{}, map[uint16]bool{4711: true}
	for _, c := range []struct {
		name string
		e    Event
		want bool
	}{
		{"a request", Event{id: 1, Packet: Header{From: from, To: to, FromPort: 61001, ToPort: 80}}, true},
		{"the same, changed", Event{id: 1, Packet: Header{From: host, To: host, FromPort: 4711, ToPort: 81}}, true},
		{"its answer", Event{id: 2, Packet: Header{From: to, To: host, FromPort: 80, ToPort: 4711}}, true},
		{"of another trace", Event{id: 3, Packet: Header{From: from, To: to, FromPort: 61002, ToPort: 80}}, false},
		{"the answer of that", Event{id: 4, Packet: Header{From: to, To: host, FromPort: 80, ToPort: 61002}}, false},
		{"of others with its port", Event{id: 5, Packet: Header{From: host, To: netip.MustParseAddr("192.0.2.9"), FromPort: 61001, ToPort: 80}}, false},
		{"an error", Event{id: 6, Packet: Header{From: host, To: from, Protocol: 1, Type: 3}}, true},
	} {
		if got := f.isMine(c.e, known, ports); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestLearn follows the next packet of the sender that is watched, and no other's.
func TestLearn(t *testing.T) {
	from, other, to := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("10.88.0.3"), netip.MustParseAddr("192.0.2.254")
	next := Header{From: from, To: to, Protocol: unix.IPPROTO_TCP, FromPort: 40000, ToPort: 80}
	for name, change := range map[string]func(h *Header){
		"it":                func(*Header) {},
		"another sender":    func(h *Header) { h.From = other },
		"another receiver":  func(h *Header) { h.To = other },
		"another port":      func(h *Header) { h.ToPort = 81 },
		"another protocol":  func(h *Header) { h.Protocol = unix.IPPROTO_UDP },
		"without its ports": func(h *Header) { h.FromPort = 0 },
	} {
		h, r := next, &run{flow: Flow{Protocol: TCP, From: from, To: to, ToPort: 80}}
		change(&h)
		if got := r.learn(heard{Event: Event{Packet: h}}); got != (name == "it") || got != (r.flow.Port == next.FromPort) {
			t.Errorf("%s: %v, then it follows %+v", name, got, r.flow)
		}
	}
}

// TestConcerns: a question who has an address that this flow does not need is another trace's.
func TestConcerns(t *testing.T) {
	from, to := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	host := &place{name: "host"}
	r := &run{host: host, source: host, flow: Flow{Protocol: TCP, From: from, To: to}}
	for about, want := range map[netip.Addr]bool{{}: true, from: true, to: true, netip.MustParseAddr("127.0.0.3"): false} {
		if got := r.concerns(Event{Family: "arp", Packet: Header{About: about}}); got != want {
			t.Errorf("who has %s: %v", about, got)
		}
	}
}

// FuzzParse reads whatever a kernel may send.
func FuzzParse(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 8, 0, 1, 0, 'm', 'i', 'n', 'e'})
	f.Fuzz(func(_ *testing.T, data []byte) {
		m := netlink.Message{Data: data}
		m.Header.Type = nftMessage(unix.NFT_MSG_TRACE)
		parse(m)
	})
}
