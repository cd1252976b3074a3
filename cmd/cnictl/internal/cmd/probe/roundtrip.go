package probe

import "time"

// roundTrip returns how long the other side took to answer, by the times at which the kernel saw the request leave and the answer come: a
// busy machine may let this process wait for much longer. 0: not known, as where the answer is this process' own.
func (w *subject) roundTrip(t *Test, seen *traces) time.Duration {
	if t.outside {
		return 0
	}
	way, found := w.way(t), seen.trailOf(t)
	if len(way) == 0 || t.protocol == udp && t.reached != nil {
		return 0
	}
	sent, back := firstAt(found.requests, way[0]), firstAt(found.answers, way[0].back())
	if sent.IsZero() || back.Before(sent) {
		return 0
	}
	return back.Sub(sent)
}

// firstAt returns when one of the packets was first seen at a place.
func firstAt(packets []sight, p point) (first time.Time) {
	for _, s := range packets {
		if s.isAt(p) && (first.IsZero() || s.at.Before(first)) {
			first = s.at
		}
	}
	return first
}
