package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// Loss is where a packet was lost, and why as far as that is easy to know.
type Loss struct {
	Packet    string `json:"packet"`              // the request, the answer, or a question for the next one's link address
	SeenAt    string `json:"seenAt,omitempty"`    // the last place on its way at which it was
	NotSeenAt string `json:"notSeenAt,omitempty"` // the next one
	Reason    string `json:"reason,omitempty"`
	Remedy    string `json:"remedy,omitempty"`
}

// String is where it was lost.
func (l *Loss) String() string {
	switch {
	case l.SeenAt == "" && l.NotSeenAt == "":
		return ""
	case l.SeenAt == "":
		return fmt.Sprintf("the %s was not sent: not seen at %s", l.Packet, l.NotSeenAt)
	case l.NotSeenAt == "" && l.Packet == answerPacket:
		return fmt.Sprintf("the answer came back to %s", l.SeenAt)
	case l.NotSeenAt == "":
		return fmt.Sprintf("the %s came to %s, and no answer was seen", l.Packet, l.SeenAt)
	}
	return fmt.Sprintf("the %s was lost between %s (seen) and %s (not seen)", l.Packet, l.SeenAt, l.NotSeenAt)
}

const (
	requestPacket = "request"
	answerPacket  = "answer"
)

// locate finds out where a test's packets were lost.
func (w *subject) locate(t *Test, seen *traces) *Loss {
	if t.lost != nil {
		return t.lost
	}
	var said refusal
	if errors.As(t.err, &said) {
		return &Loss{Packet: answerPacket, Reason: said.Error()}
	}
	if t.asksAgent && errors.Is(t.err, syscall.ECONNREFUSED) {
		return &Loss{Packet: requestPacket, Reason: "no agent answers: containers reach nothing by the names on their lists", Remedy: "systemctl enable --now cnibox-agent, or cnictl agent --dns"}
	}
	way, found := w.way(t), seen.trailOf(t)
	if astray := stray(t, found); astray != "" {
		return &Loss{Packet: answerPacket, SeenAt: way[0].String(), Reason: astray, Remedy: `let portmap masquerade these connections: leave out "snat": false`}
	}
	l := &Loss{Packet: requestPacket, Reason: rejection(found)}
	if reached := farthest(way, found.requests); reached+1 < len(way) {
		l.between(way, reached)
		w.explainGap(l, t, seen, way, reached)
		return l
	}
	back := reversed(way)
	came := farthest(back, found.answers)
	switch {
	case came < 0:
		l.SeenAt = way[len(way)-1].String()
		w.explainSilence(l, t, seen, way, found)
	case came+1 < len(back):
		l.Packet = answerPacket
		l.between(back, came)
		w.explainGap(l, t, seen, back, came)
	default:
		l.Packet, l.SeenAt = answerPacket, back[came].String()
		l.explain("it was not taken there: it came too late, or is not what was expected", "try again with a longer --timeout")
	}
	return l
}

func (l *Loss) between(way []point, reached int) {
	if reached >= 0 {
		l.SeenAt = way[reached].String()
	}
	l.NotSeenAt = way[reached+1].String()
	if l.SeenAt == l.NotSeenAt { // a bridge that the host should send the packet back by
		l.SeenAt, l.NotSeenAt = l.SeenAt+", coming in", l.NotSeenAt+", going out"
	}
}

// explain adds a reason to what others have said.
func (l *Loss) explain(reason, remedy string) {
	if l.Reason != "" && reason != "" {
		l.Reason += "; "
	}
	l.Reason, l.Remedy = l.Reason+reason, remedy
}

// explainGap says why packets did not come from one place of their way to the next.
func (w *subject) explainGap(l *Loss, t *Test, seen *traces, way []point, reached int) {
	next := way[reached+1]
	if t.from != nil && t.from == t.reached && t.from.bridge() != nil && !t.from.hairpin() {
		l.explain(fmt.Sprintf("%s sends nothing back by the port by which it came: hairpin is off", t.from.bridge().Attrs().Name), "ip link set "+t.from.HostEnd+" type bridge_slave hairpin on")
		return
	}
	if w.explainNeighbour(l, t, seen, way[reached+1:]) {
		return
	}
	if reached < 0 {
		l.explain(w.whyNotSent(t, next))
		return
	}
	l.explain(w.why(t, way[reached], next))
}

// explainNeighbour reports whether the sender at the beginning of a way looks in vain for the one who is to get the packet on the link, and
// follows its question: who has this address?
func (w *subject) explainNeighbour(l *Loss, t *Test, seen *traces, way []point) bool {
	asked := way[0]
	if !asked.out || asked.in == nil && !asked.router {
		return false
	}
	target := w.nextHop(t, asked, l.Packet == answerPacket)
	questions := seen.unanswered(asked, target)
	if questions == nil {
		return false
	}
	for i, p := range way[1:] { // no farther than the link goes
		if p.router {
			way = way[:i+2]
			break
		}
	}
	l.Packet = fmt.Sprintf("question who has %s", target)
	reached := farthest(way, questions)
	if reached+1 < len(way) {
		l.between(way, reached)
		if l.explain(w.why(nil, way[reached], way[reached+1])); l.Reason == "" {
			l.explain(w.whyTraced(t))
		}
		return true
	}
	l.SeenAt, l.NotSeenAt = way[reached].String(), ""
	l.explain(whyNobodyHas(way[reached], target))
	return true
}

// nextHop is who gets a test's packet, or the answer, on the link by which it leaves a place.
func (w *subject) nextHop(t *Test, p point, answer bool) (hop netip.Addr) {
	f := familyOf(t.target.Addr())
	switch {
	case answer && t.from != nil:
		hop = t.from.address(f)
	case answer:
		hop = first(t.reached.Gateways, f)
	case p.in == nil && t.reached != nil:
		hop = t.reached.address(f)
	default:
		hop = t.target.Addr()
	}
	var r route
	if p.in == nil {
		r = routeTo(hop)
	} else {
		_ = p.in.inside(func() error { r = routeTo(hop); return nil })
	}
	if r.next.IsValid() {
		return r.next
	}
	return hop
}

// rejection is what a host or router said about the packets.
func rejection(found trail) string {
	for _, r := range found.rejections {
		return fmt.Sprintf("%s answered by ICMP: %s", r.from, r.rejection)
	}
	return ""
}

// stray says that an answer came without being translated back.
func stray(t *Test, found trail) string {
	for _, p := range found.answers {
		if p.in == t.from && p.in != nil && !p.out && p.from != t.target.Addr() {
			return fmt.Sprintf("it came from %s, while %s was asked: it went past the host, which would have translated the address", p.from, t.target.Addr())
		}
	}
	return ""
}
