package daemon

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// takeUp goes on with a lease of the daemon before this one.
func (d *daemon) takeUp(l *lease) {
	l.working.Lock()
	defer l.working.Unlock()
	if d.dir.Queued(l.Key) {
		d.end(l)
		return
	}
	for i := range l.families {
		if l.life.Err() == nil {
			d.extend(l, i, rebooting, confirmTime)
		}
	}
	d.keep(l)
}

// keep extends a lease's holdings as long as it lives.
func (d *daemon) keep(l *lease) {
	for i := range l.families {
		go func() {
			for tried := fresh; ; {
				holdings, lost := l.get()
				if lost != nil {
					return
				}
				select {
				case <-l.life.Done():
					return
				case <-time.After(holdings[i].pause(time.Now(), tried)):
				}
				tried = d.extendNow(l, i)
			}
		}()
	}
}

// extendNow extends a holding as the phase of its time says, which it returns.
func (d *daemon) extendNow(l *lease, i int) phase {
	l.working.Lock()
	defer l.working.Unlock()
	holdings, lost := l.get()
	now := time.Now()
	how := holdings[i].phase(now)
	if l.life.Err() == nil && lost == nil {
		d.extend(l, i, how, min(d.timeout, holdings[i].rest(now)))
	}
	return how
}

// extend asks for more time for a holding, and settles what comes of that. The lease's working is held.
func (d *daemon) extend(l *lease, i int, how phase, limit time.Duration) {
	ctx, cancel := context.WithTimeout(l.life, limit)
	defer cancel()
	holdings, _ := l.get()
	h, f := holdings[i], l.families[i]
	next, err := h, errors.New("its time is over")
	if how != expired {
		next, err = f.extend(ctx, l.enter, h, how)
	}
	if errors.Is(err, errRefused) {
		next, err = d.again(l, f, h)
	}
	switch {
	case l.life.Err() != nil:
	case err == nil:
		l.replace(i, next)
		if err := d.save(l); err != nil {
			log.Printf("%s: %v", l.Key, err)
		}
	case errors.Is(err, errGone):
		log.Printf("%s: %v", l.Key, err)
		d.end(l)
	case how == expired, errors.Is(err, errRefused):
		d.lose(l, h, err)
	default:
		log.Printf("%s: %s is not extended: %v", l.Key, h.address, err)
	}
}

func (l *lease) replace(i int, h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holdings[i] = h
}

// again asks for the same address anew, for one that was refused: the server may have forgotten it.
func (d *daemon) again(l *lease, f family, h *holding) (*holding, error) {
	ctx, cancel := context.WithTimeout(l.life, confirmTime)
	defer cancel()
	next, err := f.acquire(ctx, l.enter, h.address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if next.address != h.address {
		_ = f.release(l.enter, l.place, next)
		return nil, fmt.Errorf("%w: it offers %s instead", errRefused, next.address)
	}
	return next, nil
}

// lose takes an address from the container that must not be used any more. Who asks for the lease is told so until its DEL.
func (d *daemon) lose(l *lease, h *holding, why error) {
	l.mu.Lock()
	l.lost = fmt.Errorf("%s was lost: %w", h.address, why)
	l.mu.Unlock()
	err := errors.Join(l.enter(removeAddress(h)), d.dir.Remove(l.Key))
	log.Printf("%s: %v %v", l.Key, l.lost, err)
}

func removeAddress(h *holding) func(netlink.Link) error {
	return func(l netlink.Link) error {
		all, err := netlink.AddrList(l, unix.AF_UNSPEC)
		for _, a := range all {
			if a.IP.Equal(net.IP(h.address.AsSlice())) {
				err = errors.Join(err, netlink.AddrDel(l, &a))
			}
		}
		return err
	}
}
