package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp"
)

// lease is what one attachment holds: an address of each family that it asked for.
type lease struct {
	*dhcp.Request
	*location
	families []family
	life     context.Context // ends when the lease must be released
	stop     context.CancelFunc
	working  sync.Mutex // held by who talks to the server

	mu       sync.Mutex
	holdings []*holding // by family; not complete until all are there
}

// family is DHCPv4 or DHCPv6.
type family interface {
	String() string
	// acquire asks for a lease, of the wanted address if the server agrees, until ctx ends.
	acquire(ctx context.Context, in entry, wanted netip.Addr) (*holding, error)
	// extend asks for more time, until ctx ends. errRefused says that the address must not be used any more.
	extend(ctx context.Context, in entry, h *holding, how phase) (*holding, error)
	// release tells the server that the address is not used any more.
	release(p *location, h *holding) error
	// parse reads a holding from what the server sent.
	parse(packet []byte) (*holding, error)
	// report adds what the server sent to a result, for a link of that MTU.
	report(h *holding, mtu int, result *types100.Result) error
}

var (
	errRefused = errors.New("the server refuses the address")
	errAsking  = types.NewError(types.ErrTryAgainLater, "the lease is being asked for by another ADD", "wait for that to end")
)

// confirmTime is how long a server has to answer when a lease is taken up, and when it is to give another one for one it refused.
const confirmTime = 10 * time.Second

func (d *daemon) newLease(q *dhcp.Request, p *location) (*lease, error) {
	o, err := q.Options()
	if err != nil {
		return nil, err
	}
	l := &lease{Request: q, location: p}
	if o.IPv4 {
		l.families = append(l.families, &v4{settings: d.settings, options: o, clientID: clientID(q.Key), broadcast: d.broadcast || p.kind == "ipvlan"})
	}
	if o.IPv6 {
		l.families = append(l.families, newV6(d.settings, q.Key))
	}
	return l, nil
}

// add gets a lease for an attachment, or returns the one that it has, which is not new.
func (d *daemon) add(ctx context.Context, q *dhcp.Request) (result *types100.Result, isNew bool, err error) {
	p, err := findLocation(d.netnsPath(q.Netns), q.IfName)
	if err != nil {
		return nil, false, err
	}
	l, err := d.newLease(q, p)
	if err != nil {
		return nil, false, err
	}
	l.life, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.working.Lock()
	defer l.working.Unlock()
	if other := d.enlist(l); other != nil {
		result, err = other.result(p.mtu)
		if err == nil && other.isSame(p) && !d.dir.Queued(q.Key) || errors.Is(err, errAsking) {
			return result, false, err
		}
		// It is of a container before this one, or not held any more.
		if err := d.release(q.Key); err != nil || d.enlist(l) != nil {
			return nil, false, cmp.Or(err, error(errAsking))
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.resendTimeout, fmt.Errorf("no answer within %v", d.resendTimeout))
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	// Files of a daemon that was killed on the way to forget a lease must not end this one.
	if err = d.dir.Remove(l.Key); err == nil {
		err = l.acquire(ctx)
	}
	if err == nil {
		err = d.save(l)
	}
	if err == nil {
		result, err = l.result(p.mtu)
	}
	if err != nil {
		return nil, false, errors.Join(err, d.end(l))
	}
	log.Printf("%s: leased %s", l.Key, l.describe())
	d.extendAll(l)
	return result, true, nil
}

// enlist adds a lease unless there is one of that key, which it returns.
func (d *daemon) enlist(l *lease) (other *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if other = d.leases[l.Key]; other == nil {
		d.leases[l.Key] = l
	}
	return other
}

// leaseOf returns the lease of an attachment, nil if there is none.
func (d *daemon) leaseOf(k plugin.Key) *lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[k]
}

// acquire gets an address of each family, or none.
func (l *lease) acquire(ctx context.Context) (err error) {
	defer caught(&err)
	if err := l.setUp(); err != nil {
		return err
	}
	var holdings []*holding
	for _, f := range l.families {
		h, err := f.acquire(ctx, l.enter, netip.Addr{})
		if err != nil {
			l.set(holdings) // to be released
			if ctx.Err() != nil {
				return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("no lease of an address by %s: %v", f, err),
					"is there a server on the segment, with a free address? Packets must pass between it and "+l.IfName)
			}
			return fmt.Errorf("%s: %w", f, err)
		}
		holdings = append(holdings, h)
	}
	l.set(holdings)
	return nil
}

func (l *lease) set(holdings []*holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holdings = holdings
}

// get returns the holdings.
func (l *lease) get() []*holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.holdings)
}

// result returns the lease as a result, for a link of that MTU.
func (l *lease) result(mtu int) (*types100.Result, error) {
	holdings := l.get()
	if len(holdings) < len(l.families) {
		return nil, errAsking
	}
	r := &types100.Result{CNIVersion: plugin.CurrentVersion}
	for i, f := range l.families {
		if holdings[i].lost != nil {
			return nil, holdings[i].lost
		}
		if err := f.report(holdings[i], mtu, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (l *lease) describe() (text string) {
	for _, h := range l.get() {
		text += fmt.Sprintf("%s for %v ", h.address, h.end)
	}
	return text
}

// check returns the lease that an attachment holds.
func (d *daemon) check(q *dhcp.Request) (*types100.Result, error) {
	const repair = "restart the container, so that it gets a lease again"
	l := d.leaseOf(q.Key)
	if l == nil {
		return nil, plugin.Errorf(repair, "no lease is held for %s", q.Key)
	}
	mtu := 0
	if err := l.enter(func(l netlink.Link) error { mtu = l.Attrs().MTU; return nil }); err != nil {
		return nil, plugin.Errorf(repair, "the lease of %s: %w", q.Key, err)
	}
	result, err := l.result(mtu)
	if err != nil {
		return nil, plugin.Errorf(repair, "the lease of %s is not held: %w", q.Key, err)
	}
	return result, nil
}

// release releases what an attachment holds, and stops who is asking for it.
func (d *daemon) release(k plugin.Key) error {
	l := d.leaseOf(k)
	if l == nil {
		return d.dir.Remove(k) // of a lease that could not be taken up
	}
	l.stop()
	l.working.Lock()
	defer l.working.Unlock()
	return d.end(l)
}

// end releases a lease and forgets it, if that is not done. Its working is held.
func (d *daemon) end(l *lease) error {
	if d.leaseOf(l.Key) != l {
		return nil
	}
	l.stop()
	for i, h := range l.get() {
		if h.lost != nil {
			continue
		}
		log.Printf("%s: released %s %v", l.Key, h.address, l.letGo(l.families[i], h))
	}
	err := d.dir.Remove(l.Key)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases, l.Key)
	return err
}

func (l *lease) letGo(f family, h *holding) (err error) {
	defer caught(&err)
	return f.release(l.location, h)
}

// save writes a lease's file.
func (d *daemon) save(l *lease) error {
	o := l.Document()
	o.Set("boot", bootID())
	o.Set("place", l.location.document())
	for i, h := range l.get() {
		if h.lost == nil {
			o.Set(l.families[i].String(), h.document())
		}
	}
	return d.dir.Write(l.Key, o)
}

// restore reads what save wrote, in this boot of the machine or in an earlier one.
func (d *daemon) restore(q *dhcp.Request, o *conf.Object) (l *lease, err error) {
	defer caught(&err)
	boot, path := "", d.netnsPath(q.Netns)
	o.String("boot", &boot)
	thisBoot := boot != "" && boot == bootID()
	if boot != "" && !thisBoot {
		path = "" // the container ended with its boot, and another one may be there
	}
	p, err := parseLocation(path, o.Object("place"))
	if err != nil {
		return nil, err
	}
	l, err = d.newLease(q, p)
	if err != nil {
		return nil, err
	}
	for _, f := range l.families {
		if !o.Has(f.String()) {
			l.holdings = append(l.holdings, &holding{lost: fmt.Errorf("the address by %s was lost", f)})
			continue
		}
		h, err := parseHolding(f, o.Object(f.String()), thisBoot)
		if err != nil {
			return nil, err
		}
		l.holdings = append(l.holdings, h)
	}
	return l, nil
}
