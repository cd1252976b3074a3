package resolver

import (
	"net/netip"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// mostOpened is how many addresses names may have open for one container at a time: sets are shared by all with an equal list, and have an end.
const mostOpened = 1024

// hasShare reports whether a container may have some more addresses opened, and counts them.
func (r *Resolver) hasShare(from *asker, openings []nft.Opening) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, o := range openings {
		if _, is := from.opened[o.Addr]; !is && len(from.opened) >= mostOpened {
			for a, until := range from.opened {
				if until.Before(now) {
					delete(from.opened, a)
				}
			}
			if len(from.opened) >= mostOpened {
				return false
			}
		}
		from.opened[o.Addr] = now.Add(o.For)
	}
	return true
}

// opened is until when addresses are open that a container has asked for.
type opened map[netip.Addr]time.Time

// opener changes the packet filter for all answers that wait, at one time, and leaves it alone for as long as that took: whoever changes it has all others on
// the node wait.
type opener struct {
	filter filter

	mu   sync.Mutex
	next *batch // of those who wait; nil if nobody does
	busy bool
}

// filter is where addresses are opened, all or none.
type filter interface {
	open(openings []nft.Opening) error
}

// nfTables are those of the node.
type nfTables struct{}

func (nfTables) open(openings []nft.Opening) error {
	c, err := nft.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.OpenByName(openings)
}

// batch is what is opened together.
type batch struct {
	openings []nft.Opening
	done     chan struct{}
	errs     map[string]error // by list
}

// open returns when the addresses are open, which are all of one list's.
func (o *opener) open(openings []nft.Opening) error {
	o.mu.Lock()
	if o.next == nil {
		o.next = &batch{done: make(chan struct{}), errs: map[string]error{}}
	}
	b := o.next
	b.openings = append(b.openings, openings...)
	if !o.busy {
		o.busy = true
		go o.work()
	}
	o.mu.Unlock()
	<-b.done
	return b.errs[openings[0].List]
}

// work opens until nobody waits.
func (o *opener) work() {
	for {
		o.mu.Lock()
		b := o.next
		if o.next = nil; b == nil {
			o.busy = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		began := time.Now()
		b.open(o.filter)
		close(b.done)
		<-time.After(time.Since(began))
	}
}

func (b *batch) open(f filter) {
	if f.open(b.openings) == nil {
		return
	}
	lists := map[string][]nft.Opening{} // one that is gone must not keep others from being opened
	for _, o := range b.openings {
		lists[o.List] = append(lists[o.List], o)
	}
	for list, openings := range lists {
		b.errs[list] = f.open(openings)
	}
}
