package probe

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
)

var (
	a, b     = &Container{Name: "a"}, &Container{Name: "b"}
	addressA = netip.MustParseAddr("10.88.0.2")
	addressB = netip.MustParseAddr("10.88.0.3")
	// The way from a to b over a bridge, and its links.
	leaving  = point{in: a, link: 2, name: "eth0", out: true}
	fromPort = point{link: 5, name: "vethA"}
	toPort   = point{link: 6, name: "vethB", out: true}
	entering = point{in: b, link: 2, name: "eth0"}
	way      = []point{leaving, fromPort, toPort, entering}
)

// seenAt is a packet at a place.
func seenAt(p point, s sight) sight {
	s.in, s.link, s.out = p.in, p.link, p.out
	return s
}

func TestFarthest(t *testing.T) {
	for _, test := range []struct {
		name string
		at   []point
		want int
	}{
		{"nowhere", nil, -1},
		{"at the first", []point{leaving}, 0},
		{"on the way", []point{leaving, fromPort}, 1},
		{"missed in between", []point{leaving, toPort}, 2},
		{"arrived", way, 3},
		{"the other way", reversed(way), -1},
	} {
		var packets []sight
		for _, p := range test.at {
			packets = append(packets, seenAt(p, sight{}))
		}
		if got := farthest(way, packets); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestTrail knows a connection again where its addresses and ports are translated, and nobody else's.
func TestTrail(t *testing.T) {
	const port = 40000
	host := netip.MustParseAddr("192.0.2.1")
	test := newTest("", attempt{protocol: tcp, from: a, reached: b}, host, port)
	syn := func(number uint32) *layers.TCP { return &layers.TCP{SYN: true, Seq: number} }
	quoted := binary.BigEndian.AppendUint32([]byte("any header"), 77)
	s := &traces{sights: []sight{
		seenAt(leaving, sight{kind: connection, from: addressA, to: host, toPort: port, tcp: syn(77)}),
		seenAt(toPort, sight{kind: connection, from: addressA, to: addressB, toPort: servedPort, tcp: syn(77)}),
		seenAt(leaving, sight{kind: connection, from: addressA, to: addressB, toPort: servedPort, tcp: syn(78)}),
		seenAt(fromPort, sight{kind: connection, tcp: &layers.TCP{SYN: true, ACK: true, Ack: 78, Seq: 9}}),
		seenAt(fromPort, sight{kind: connection, tcp: &layers.TCP{SYN: true, ACK: true, Ack: 79}}),
		seenAt(fromPort, sight{kind: connection, tcp: &layers.TCP{RST: true, ACK: true, Ack: 78}}),
		seenAt(fromPort, sight{kind: rejected, payload: quoted}),
		seenAt(fromPort, sight{kind: rejected, from: addressA, payload: []byte("something else")}),
	}}
	found := s.trailOf(test)
	if len(found.requests) != 2 || len(found.answers) != 1 || len(found.resets) != 1 || len(found.rejections) != 1 {
		t.Errorf("%d requests, %d answers, %d resets, %d rejections", len(found.requests), len(found.answers), len(found.resets), len(found.rejections))
	}
}

// TestTrailOfDatagrams tells questions from answers, and the questions of one name server from those of another.
func TestTrailOfDatagrams(t *testing.T) {
	for _, one := range []*Test{
		newTest("", attempt{protocol: udp, from: a}, addressB, servedPort),
		newTest("", attempt{protocol: udp, from: a, asksName: true}, addressB, 53),
	} {
		other := newTest("", one.attempt, addressB, servedPort)
		if one.asksName {
			one.question, one.answer = query("example.org")
			other.question, other.answer = query("example.org")
		}
		answer := answerTo(one.question)
		if one.asksName {
			answer[2] |= 0x80
		}
		s := &traces{sights: []sight{{kind: datagram, payload: one.question}, {kind: datagram, payload: answer}, {payload: answer}}}
		if found := s.trailOf(one); len(found.requests) != 1 || len(found.answers) != 1 {
			t.Errorf("%d requests, %d answers", len(found.requests), len(found.answers))
		}
		if found := s.trailOf(other); len(found.requests) != 0 || len(found.answers) != 0 {
			t.Errorf("of another test: %d requests, %d answers", len(found.requests), len(found.answers))
		}
	}
}

// TestUnanswered finds who is asked for in vain, by the one who asks.
func TestUnanswered(t *testing.T) {
	asks := sight{kind: whoHas, about: addressB, sender: "a"}
	all := []sight{seenAt(leaving, asks), seenAt(fromPort, asks), seenAt(fromPort, sight{kind: whoHas, about: addressB, sender: "another"})}
	s := &traces{sights: all}
	if got := s.unanswered(leaving, addressB); len(got) != 2 {
		t.Errorf("%d questions", len(got))
	}
	if got := s.unanswered(leaving, addressA); got != nil {
		t.Errorf("of another address: %v", got)
	}
	s.sights = append(all, seenAt(fromPort, sight{kind: isAt, about: addressB}))
	if got := s.unanswered(leaving, addressB); len(got) != 2 {
		t.Error("an answer elsewhere counts")
	}
	s.sights = append(all, seenAt(leaving.back(), sight{kind: isAt, about: addressB}))
	if got := s.unanswered(leaving, addressB); got != nil {
		t.Error("it was answered")
	}
}

func TestLoss(t *testing.T) {
	for _, test := range []struct {
		loss Loss
		want string
	}{
		{Loss{Packet: "request", SeenAt: "x", NotSeenAt: "y"}, "the request was lost between x (seen) and y (not seen)"},
		{Loss{Packet: "request", NotSeenAt: "y"}, "the request was not sent: not seen at y"},
		{Loss{Packet: "request", SeenAt: "x"}, "the request came to x, and no answer was seen"},
		{Loss{Packet: "answer", SeenAt: "x"}, "the answer came back to x"},
		{Loss{Packet: "answer", Reason: "why"}, ""},
	} {
		if got := test.loss.String(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.loss, got, test.want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, fine := range map[string]bool{"": true, "example.org": true, "example.org.": true, "localhost": true, string(make([]byte, 300)): false} {
		if err := CheckName(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRoundTripBegins(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	packets := []sight{seenAt(leaving, sight{at: late}), seenAt(leaving, sight{at: early}), seenAt(fromPort, sight{at: time.Unix(0, 5)})}
	if got := firstAt(packets, leaving); got != early {
		t.Error(got)
	}
	if got := firstAt(packets, entering); !got.IsZero() {
		t.Error(got)
	}
}
