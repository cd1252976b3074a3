// Package etcd hands out addresses that several hosts share, and keeps them in an etcd cluster: the IPAM plugin etcd.
//
// An ADD is one transaction, however full the pool is: it names some addresses, and etcd takes the first that is free. All that a host holds
// hangs on one lease of etcd, which the host renews; when nothing was heard of a host for the grace, its addresses are free.
package etcd

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// Plugin is etcd.
type Plugin struct{ settings.Configuration }

// Row is its row in a table.
var Row = plugin.Descriptor{
	Name: shared.Plugin, Kind: plugin.IPAM, Plugin: Plugin{}, ChecksWithoutResult: true, AddressesUniqueToNode: true,
	Summary: "hand out addresses that several hosts share, kept in an etcd cluster",
}

// pool is a network's addresses in etcd, and this host's notes of its own.
type pool struct {
	*settings.Settings
	*cluster
	notes.Dir
	request  *plugin.Request
	space    space
	network  string
	now      time.Time
	number   string           // of this host
	ending   clientv3.LeaseID // on which all hangs that end writes
	outdated bool             // what freeAll has found out about etcd and this host
}

func open(ctx context.Context, r *plugin.Request) (*pool, error) {
	s, err := settings.Read(r.Config.Object("ipam"))
	if err == nil {
		err = s.Identify()
	}
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	c, err := dial(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &pool{Settings: s, cluster: c, Dir: notes.Of(r), request: r, space: newSpace(s.Prefix, r.Network), network: r.Network, now: now}
	if p.number, err = p.Number(); err != nil {
		return p, p.Failed(err)
	}
	return p, p.keepName(ctx)
}

// limit ends a call when its time is over.
func (p *pool) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, p.now.Add(p.Timeout))
}

func (p *pool) close() { _ = p.Close() }

func (p *pool) owner(k plugin.Key) owner { return owner{p.Host, k.ContainerID, k.IfName} }

// Add takes one address of each range set, all or none.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, err := settings.Load(r)
	if err != nil {
		return nil, err
	}
	if err := c.ReadRequests(r); err != nil {
		return nil, err
	}
	dns, err := c.DNS()
	if err != nil {
		return nil, err
	}
	if err := notes.CheckKey(r.Key); err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "take addresses from etcd"); err != nil {
		return nil, err
	}
	p, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer p.close()
	ctx, end := p.limit(ctx)
	defer end()
	addresses, err := p.add(ctx, r, c.Pools)
	if err != nil {
		return nil, err
	}
	_ = p.catchUp(ctx, atOnce) // others' business, which is tried again
	return c.Result(addresses, dns), nil
}

// add takes the addresses and notes them. Until they are noted a file says that they must be freed.
func (p *pool) add(ctx context.Context, r *plugin.Request, pools []ranges.Pool) ([]netip.Addr, error) {
	lock, isOpen, err := p.Claim(ctx, r.Key)
	if err != nil {
		return nil, p.Failed(err)
	}
	defer lock.Release()
	if err := p.refuseSecond(r, isOpen); err != nil {
		return nil, errors.Join(err, state.Remove(p.OpenFile(r.Key)))
	}
	if err := p.freeEarlier(ctx, r.Key, isOpen); err != nil {
		return nil, p.Failed(err)
	}
	var addresses []netip.Addr
	var lease clientv3.LeaseID
	if p.now, err = p.Begin(r.Key, p.now); err == nil {
		addresses, lease, err = p.takeOnLease(ctx, r.Key, pools)
	}
	if err == nil {
		err = p.WriteHeld(r.Key, notes.Held{Addresses: addresses, Since: p.now, Unsure: p.lostAnswer})
	}
	if err == nil {
		err = p.mustKeep(ctx, lease)
	}
	if err == nil {
		err = state.Remove(p.OpenFile(r.Key))
	}
	if err != nil && !p.lostAnswer { // else the next call frees what may have been taken
		err = errors.Join(err, p.finish(ctx, r.Key, notes.Held{Addresses: addresses}))
	}
	return addresses, p.Failed(err)
}

// refuseSecond refuses an attachment that has addresses, unless they are of an earlier one whose namespace is known to be gone. Those are freed.
func (p *pool) refuseSecond(r *plugin.Request, isOpen bool) error {
	has, known := p.ReadHeld(r.Key)
	if !known || isOpen {
		return nil
	}
	if file, err := os.Stat(p.HeldFile(r.Key)); err == nil {
		had := presence.Asked{Key: r.Key, Results: r.Results, Since: file.ModTime(), Adding: r.Netns}
		if presence.NewHost(presence.DefaultNotes).About(had).State.IsOver() {
			return nil
		}
	}
	return plugin.Errorf("call DEL for it before the next ADD (it gets one address of each range set); what it has is unchanged",
		"failed to allocate: %s has been allocated to %s, duplicate allocation is not allowed", text(has.Addresses), p.owner(r.Key))
}

// freeEarlier frees what an attachment has of an earlier ADD, which did not come to its end or whose namespace is gone.
func (p *pool) freeEarlier(ctx context.Context, k plugin.Key, isOpen bool) error {
	had, known := p.ReadHeld(k)
	if !isOpen && !known {
		return nil
	}
	if !isOpen {
		if _, err := p.Begin(k, had.Since); err != nil {
			return err
		}
	}
	had.Unsure = had.Unsure || isOpen
	return p.free(ctx, k, had)
}

func text(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// takeOnLease takes addresses with this host's lease, which it returns. Where that has run out, or etcd has another past than this host knows, it first
// makes sure what is still its own.
func (p *pool) takeOnLease(ctx context.Context, k plugin.Key, pools []ranges.Pool) ([]netip.Addr, clientv3.LeaseID, error) {
	const most = 3
	for range most {
		lease, err := p.hostLease(ctx)
		if err != nil {
			return nil, 0, err
		}
		addresses, err := p.allocate(ctx, p.owner(k), pools, lease)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			err = p.forget()
		case errors.Is(err, errPast):
			var is host
			if _, is, err = p.meet(ctx, true); err == nil {
				err = p.mustWait(is.restored)
			}
		default:
			return addresses, lease, err
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, joinsTwice()
}

// Del frees all addresses of the attachment. While etcd can't be reached it notes that they must be freed, and that is enough.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	if notes.CheckKey(r.Key) != nil {
		return nil // ADD has refused it
	}
	n := notes.Of(r)
	lock, had, err := n.End(ctx, r.Key)
	if err != nil {
		return n.Failed(err)
	}
	defer lock.Release()
	p, err := open(ctx, r)
	if err != nil {
		r.WarnOf(err)
		return nil
	}
	defer p.close()
	ctx, end := p.limit(ctx)
	defer end()
	err = p.finish(ctx, r.Key, had)
	if err == nil && p.outdated {
		_, err = p.meetIfJoined(ctx)
	}
	if err != nil {
		r.WarnOf(err)
		return nil
	}
	_ = p.catchUp(ctx, atOnce) // others' business, which is tried again
	return nil
}

const restart = "restart the container, so that it gets an address of its own"

// Mend compares with etcd each address of prevResult that lies in the configured ranges. Without such an address the attachment must hold any.
// Only a restart helps: the address may be another's by now.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, _ *plugin.Mender) error {
	c, err := settings.Load(r)
	if err != nil {
		return err
	}
	var asked []netip.Addr
	for _, a := range result.PrefixesOf(r.PrevResult, r.IfName) {
		if slices.ContainsFunc(c.Pools, func(each ranges.Pool) bool { return each.Contains(a.Addr()) }) {
			asked = append(asked, a.Addr())
		}
	}
	if r.InProcess { // cnictl asks about many attachments, none of which is to wait for etcd
		return compareWithNotes(r, asked)
	}
	p, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer p.close()
	ctx, end := p.limit(ctx)
	defer end()
	if _, err := p.meetIfJoined(ctx); err != nil {
		return err
	}
	o := p.owner(r.Key)
	t := transaction{then: []clientv3.Op{clientv3.OpGet(p.space.attachment(o), clientv3.WithPrefix(), clientv3.WithKeysOnly())}}
	for _, a := range asked {
		t.then = append(t.then, clientv3.OpGet(p.space.address(a)))
	}
	answer, err := p.commit(ctx, t)
	if err != nil {
		return err
	}
	if len(asked) == 0 && answer.Responses[0].GetResponseRange().Count == 0 {
		return plugin.Errorf(restart, "etcd: Failed to find address added by %s", o)
	}
	for i, a := range asked {
		found := answer.Responses[i+1].GetResponseRange().Kvs
		if len(found) == 0 {
			return plugin.Errorf(restart, "etcd: %s of %s is nobody's", a, o)
		}
		if string(found[0].Value) != o.value(a) {
			return plugin.Errorf(restart, "etcd: %s of %s is held by %s", a, o, parseOwner(found[0].Value))
		}
	}
	return nil
}

// compareWithNotes compares addresses of an attachment with what this host has noted.
func compareWithNotes(r *plugin.Request, addresses []netip.Addr) error {
	has, known := notes.Of(r).ReadHeld(r.Key)
	if !known {
		return plugin.Errorf(restart, "etcd: this host does not know of an address of %s", r.Key)
	}
	if len(has.Lost) > 0 {
		return plugin.Errorf(restart, "etcd: %s", has.Lost[0])
	}
	for _, a := range addresses {
		if !slices.Contains(has.Addresses, a) {
			return plugin.Errorf(restart, "etcd: this host does not know that %s has %s", r.Key, a)
		}
	}
	return nil
}

// Status reports whether the configuration is valid and most members of the cluster run, one of which answers and takes new keys. It renews this
// host's lease when that is due: on a node on which nothing else happens.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := settings.Load(r)
	if err != nil {
		return err
	}
	if _, err := c.DNS(); err != nil {
		return err
	}
	ctx, end := context.WithTimeout(ctx, 4*time.Second) // a STATUS has 5
	defer end()
	p, err := open(ctx, r)
	if err != nil {
		return plugin.Unavailable(err)
	}
	defer p.close()
	ctx, end = p.limit(ctx)
	defer end()
	if err := state.Writable(p.Path); err != nil {
		return plugin.Unavailable(p.Failed(err))
	}
	is, err := p.meetIfJoined(ctx)
	if err == nil {
		err = p.mustWait(is.restored)
	}
	if err == nil {
		err = p.checkRoom(ctx)
	}
	if err != nil {
		return plugin.Unavailable(err)
	}
	return nil
}

// GC frees what attachments of this host hold in etcd that are not valid. It implements plugin.Collector.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	if err := held.GC(ctx, r, store{r}); err != nil {
		return err // catching up would wait for etcd once more
	}
	of, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer of.close()
	if _, err := of.meetIfJoined(ctx); err != nil {
		return err
	}
	return of.catchUp(ctx, 0)
}
