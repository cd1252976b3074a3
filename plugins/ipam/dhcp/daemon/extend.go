package daemon

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// takeUp goes on with a lease of the daemon before this one.
func (d *daemon) takeUp(l *lease) {
	l.working.Lock()
	defer l.working.Unlock()
	if d.dir.Queued(l.Key) {
		d.forget(l)
		return
	}
	for i, h := range l.get() {
		if l.life.Err() == nil && h.lost == nil {
			limit := confirmTime
			if rest := h.end - (uptime() - h.since); rest > 0 {
				limit = min(limit, rest)
			}
			d.extend(l, i, rebooting, limit)
		}
	}
	d.extendAll(l)
}

// forget ends a lease that nobody asked to be ended.
func (d *daemon) forget(l *lease) {
	if err := d.end(l); err != nil {
		log.Printf("%s: %v", l.Key, err)
	}
}

// extendAll extends a lease's holdings as long as it lives.
func (d *daemon) extendAll(l *lease) {
	for i := range l.families {
		go d.extendFamily(l, i)
	}
}

func (d *daemon) extendFamily(l *lease, i int) {
	for tried := fresh; ; {
		h := l.get()[i]
		if h.lost != nil || !sleepUntil(l.life, uptime()+h.pause(uptime(), tried)) {
			return
		}
		tried = d.extendNow(l, i)
	}
}

// longestSleep is how late after a sleep of the machine, in which timers stand still, it is seen what time it is.
const longestSleep = time.Minute

// sleepUntil waits until the clock uptime shows a time, and reports whether ctx has not ended by then.
func sleepUntil(ctx context.Context, end time.Duration) bool {
	for rest := end - uptime(); rest > 0; rest = end - uptime() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(rest, longestSleep)):
		}
	}
	return ctx.Err() == nil
}

// extendNow extends a holding as the phase of its time says, which it returns.
func (d *daemon) extendNow(l *lease, i int) phase {
	l.working.Lock()
	defer l.working.Unlock()
	h, now := l.get()[i], uptime()
	how := h.phase(now)
	if l.life.Err() == nil {
		d.extend(l, i, how, min(d.timeout, h.rest(now)))
	}
	return how
}

// extend asks for more time for a holding, and settles what comes of that. The lease's working is held.
func (d *daemon) extend(l *lease, i int, how phase, limit time.Duration) {
	h, f := l.get()[i], l.families[i]
	next, err := h, errors.New("its time is over")
	if how != expired {
		next, err = l.ask(f, h, how, limit)
	}
	switch {
	case l.life.Err() != nil:
	case err == nil:
		d.replace(l, i, next)
	case errors.Is(err, errGone):
		log.Printf("%s: %v", l.Key, err)
		d.forget(l)
	case how == expired, errors.Is(err, errRefused):
		d.lose(l, i, err)
	default:
		log.Printf("%s: %s is not extended: %v", l.Key, h.address, err)
	}
}

// ask asks for more time. If that is refused it asks for the same address anew: the server may have forgotten it.
func (l *lease) ask(f family, h *holding, how phase, limit time.Duration) (next *holding, err error) {
	defer caught(&err)
	ctx, cancel := context.WithTimeout(l.life, limit)
	defer cancel()
	next, err = f.extend(ctx, l.enter, h, how)
	if err == nil && next.address != h.address {
		err = fmt.Errorf("%w: it gives %s instead", errRefused, next.address)
	}
	if errors.Is(err, errRefused) {
		next, err = l.askAnew(f, h)
	}
	return next, err
}

// replace puts a holding in place of the one before.
func (d *daemon) replace(l *lease, i int, h *holding) {
	l.mu.Lock()
	l.holdings[i] = h
	l.mu.Unlock()
	if err := d.save(l); err != nil {
		log.Printf("%s: %v", l.Key, err)
	}
}

// askAnew asks for the same address anew, for one that was refused.
func (l *lease) askAnew(f family, h *holding) (*holding, error) {
	ctx, cancel := context.WithTimeout(l.life, confirmTime)
	defer cancel()
	next, err := f.acquire(ctx, l.enter, h.address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if next.address != h.address {
		_ = f.release(l.location, next)
		return nil, fmt.Errorf("%w: it offers %s instead", errRefused, next.address)
	}
	return next, nil
}

// lose takes an address from the container that must not be used any more. Calls that ask for the lease are told so until its DEL.
func (d *daemon) lose(l *lease, i int, why error) {
	h := *l.get()[i]
	h.lost = fmt.Errorf("%s was lost: %w", h.address, why)
	err := l.enter(func(own netlink.Link) error {
		all, err := netlink.AddrList(own, unix.AF_UNSPEC)
		for _, a := range all {
			if a.IP.Equal(h.address.AsSlice()) {
				err = errors.Join(err, netlink.AddrDel(own, &a))
			}
		}
		return err
	})
	log.Printf("%s: %v %v", l.Key, h.lost, err)
	d.replace(l, i, &h)
}
