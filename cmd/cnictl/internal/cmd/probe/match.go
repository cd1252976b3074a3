package probe

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// trail is what was seen of one test: its requests and the answers to them, wherever they were, and what others said about them.
type trail struct {
	requests, answers, rejections, resets []sight
}

// trailOf finds the packets of a test.
func (s *traces) trailOf(t *Test) (found trail) {
	sequences := s.sequencesOf(t)
	for _, p := range s.sights {
		switch {
		case isRequest(p, t, sequences):
			found.requests = append(found.requests, p)
		case p.kind == connection && p.tcp.ACK && slices.Contains(sequences, p.tcp.Ack-1):
			if p.tcp.SYN {
				found.answers = append(found.answers, p)
			} else if p.tcp.RST {
				found.resets = append(found.resets, p)
			}
		case (p.kind == datagram && t.protocol == udp || p.kind == reply && t.protocol == echo) && t.answeredBy(p.payload):
			found.answers = append(found.answers, p)
		case p.kind == rejected && quotes(p, t, sequences) && (t.from == nil || !slices.Contains(t.from.Addresses, p.from)): // not the sender's own kernel
			found.rejections = append(found.rejections, p)
		}
	}
	return found
}

// isRequest reports whether a packet is one of the test's. The number that begins a connection of TCP stays the same on all of its way.
func isRequest(p sight, t *Test, sequences []uint32) bool {
	switch t.protocol {
	case tcp:
		return p.kind == connection && p.tcp.SYN && !p.tcp.ACK && slices.Contains(sequences, p.tcp.Seq)
	case udp:
		return p.kind == datagram && bytes.Contains(p.payload, t.question)
	}
	return p.kind == request && bytes.Contains(p.payload, t.question)
}

// sequencesOf finds the numbers by which a test's connections begin, where their packets still have the addresses that were asked for.
func (s *traces) sequencesOf(t *Test) (all []uint32) {
	for _, p := range s.sights {
		if t.protocol != tcp || p.kind != connection || !p.tcp.SYN || p.tcp.ACK || p.in != t.from {
			continue
		}
		fromHost := t.from == nil && p.fromPort == t.source
		fromContainer := t.from != nil && p.out && netip.AddrPortFrom(p.to, p.toPort) == t.target
		if fromHost || fromContainer {
			all = append(all, p.tcp.Seq)
		}
	}
	return all
}

// quotes reports whether an error by ICMP is about a packet of the test. It has at least the first 8 bytes after that packet's IP header.
func quotes(p sight, t *Test, sequences []uint32) bool {
	if t.protocol != tcp {
		return bytes.Contains(p.payload, t.question)
	}
	return slices.ContainsFunc(sequences, func(n uint32) bool {
		return bytes.Contains(p.payload, binary.BigEndian.AppendUint32(nil, n))
	})
}

// farthest returns the last place of a way at which one of the packets was seen, -1 if none was.
func farthest(way []point, packets []sight) int {
	for i, p := range slices.Backward(way) {
		if slices.ContainsFunc(packets, func(s sight) bool { return s.isAt(p) }) {
			return i
		}
	}
	return -1
}

// unanswered returns the questions for an address that were asked at a place, wherever they were seen, if nobody has answered them there.
func (s *traces) unanswered(asked point, target netip.Addr) (questions []sight) {
	answered := asked.back()
	sender := ""
	for _, p := range s.sights {
		switch {
		case p.about != target:
		case p.kind == isAt && p.isAt(answered):
			return nil
		case p.kind == whoHas && p.isAt(asked):
			sender = p.sender
		}
	}
	for _, p := range s.sights {
		if p.kind == whoHas && p.about == target && p.sender == sender && sender != "" {
			questions = append(questions, p)
		}
	}
	return questions
}
