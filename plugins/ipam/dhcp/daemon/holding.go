package daemon

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
)

// holding is an address that a server has leased.
type holding struct {
	packet  []byte           // by which it did, and all that it said
	from    net.HardwareAddr // who sent that
	since   time.Duration    // by the clock uptime
	address netip.Addr
	// renew and rebind are when more time is asked for, of the server and of any server, and end is when the address must not be used
	// any more, all of them after since.
	renew, rebind, end time.Duration
	lost               error // why it is not held any more
}

// phase is where in its time a holding is.
type phase int

// The phases: rebooting is that of a lease that is taken up.
const (
	fresh phase = iota
	renewing
	rebinding
	expired
	rebooting
)

// minTime is the shortest time of a lease that is believed, and minPause that between two tries to extend one.
const minTime, minPause = 4 * time.Second, 10 * time.Second

// setTimes sets the times of a holding. Times that a server does not say, or can't mean, are half and seven eighths of the whole (RFC 2131).
// Leases that were got at the same time are not extended at the same time.
func (h *holding) setTimes(renew, rebind, end time.Duration) {
	h.end = max(end, minTime)
	if renew <= 0 || rebind <= renew || h.end <= rebind {
		renew, rebind = h.end/2, h.end/8*7
	}
	h.renew, h.rebind = renew-rand.N(renew/10+1), rebind
}

// phase returns where in its time the holding is.
func (h *holding) phase(now time.Duration) phase {
	switch age := now - h.since; {
	case age >= h.end:
		return expired
	case age >= h.rebind:
		return rebinding
	case age >= h.renew:
		return renewing
	}
	return fresh
}

// rest returns how long a phase lasts yet.
func (h *holding) rest(now time.Duration) time.Duration {
	ends := map[phase]time.Duration{fresh: h.renew, renewing: h.rebind, rebinding: h.end}
	return ends[h.phase(now)] - (now - h.since)
}

// pause returns how long to wait before the next try: until the phase ends in which none is due, and half the rest of the phase in which
// one has failed (RFC 2131, 4.4.5).
func (h *holding) pause(now time.Duration, tried phase) time.Duration {
	rest := h.rest(now)
	switch h.phase(now) {
	case fresh:
		return rest
	case tried:
		return max(rest/2, min(rest, minPause))
	}
	return 0
}

func (h *holding) document() *conf.Object {
	o := conf.New()
	o.Set("packet", hex.EncodeToString(h.packet))
	o.Set("from", h.from.String())
	o.Set("uptime", int(h.since.Milliseconds()))
	o.Set("since", int(time.Now().Add(h.since-uptime()).Unix())) // for people, and for a daemon that has no uptime to compare with
	o.Set("address", h.address.String())                         // for people
	return o
}

// parseHolding reads a document of this boot of the machine or of another one.
func parseHolding(f family, o *conf.Object, thisBoot bool) (*holding, error) {
	text, from, since, at := "", "", 0, 0
	o.String("packet", &text)
	o.String("from", &from)
	o.Int("since", &since)
	o.Int("uptime", &at)
	packet, err := hex.DecodeString(text)
	if err == nil {
		err = o.Err()
	}
	if err != nil {
		return nil, err
	}
	h, err := f.parse(packet)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	now := uptime()
	h.since = time.Duration(at) * time.Millisecond
	if !thisBoot {
		h.since = now - time.Since(time.Unix(int64(since), 0))
	}
	h.since = min(h.since, now)
	h.from, _ = net.ParseMAC(from)
	return h, nil
}
