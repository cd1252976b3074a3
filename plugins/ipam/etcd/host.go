package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
)

// machine is what is written of a host.
type machine struct {
	ID    string    `json:"machineID"` // machine-id(5), "" if it has none
	Since time.Time `json:"since"`
	Joins bool      `json:"joins,omitempty"` // it has not taken yet what its attachments have
}

func thisMachine() string {
	text, _ := state.Read("/etc/machine-id")
	return strings.TrimSpace(string(text))
}

// hostLease returns the lease of etcd on which all keys of this host hang. It renews it when a tenth of the grace has passed. Where this host has none,
// or its lease has run out, it makes sure first which of its addresses are still its own.
func (p *pool) hostLease(ctx context.Context) (clientv3.LeaseID, error) {
	if id := p.freshLease(); id != 0 {
		return id, nil
	}
	lock, err := state.Hold(ctx, p.lockFile())
	if err != nil {
		return 0, err
	}
	defer lock.Release()
	if id := p.freshLease(); id != 0 {
		return id, nil
	}
	id := clientv3.LeaseID(p.ReadHost().Lease)
	if id == 0 { // the file was lost, or this host is new
		found, err := p.findHost(ctx)
		if err != nil {
			return 0, err
		}
		if !found.Joins {
			id = found.lease
		}
	}
	if id != 0 {
		if err := p.renew(ctx, id); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return id, err
		}
	}
	return p.join(ctx)
}

func (p *pool) lockFile() string { return "/run/cnibox/etcd-" + p.network + ".lock" }

// keepName has this host go by the name that it has in etcd, whatever its configuration says by now, as long as it holds something there.
func (p *pool) keepName(ctx context.Context) error {
	if is := p.ReadHost().Host; is == "" || is == p.Host {
		return nil
	}
	lock, err := state.Hold(ctx, p.lockFile())
	if err != nil {
		return err
	}
	defer lock.Release()
	is := p.ReadHost().Host
	if is == "" || is == p.Host { // another call has found out meanwhile
		return nil
	}
	for _, subdirectory := range []string{"held", "open"} { // in open is what is yet to be freed
		if keys, err := p.Keys(p.network, subdirectory); err != nil || len(keys) > 0 {
			p.Host = is
			return nil
		}
	}
	return p.forget()
}

// freshLease returns the lease of this host if it was renewed a short time ago, 0 if not.
func (p *pool) freshLease() clientv3.LeaseID {
	j := p.ReadHost()
	grace := min(p.Grace, time.Duration(j.Seconds)*time.Second)  // it may have been configured otherwise when the lease was granted
	if age := time.Since(j.Renewed); age < 0 || age > grace/10 { // below 0 the clock was set
		return 0
	}
	return clientv3.LeaseID(j.Lease)
}

// renewIfJoined renews the lease of a host that has one when that is due, and finds out what it has lost.
func (p *pool) renewIfJoined(ctx context.Context) error {
	if p.ReadHost().Lease == 0 {
		return nil
	}
	_, err := p.hostLease(ctx)
	return err
}

// mustKeep refuses addresses that were taken with a lease which is this host's no more. What is noted is taken again with a new lease; a call that
// was suspended before it noted them, for longer than the grace, finds out here.
func (p *pool) mustKeep(ctx context.Context, lease clientv3.LeaseID) error {
	is, err := p.hostLease(ctx)
	if err == nil && is != lease {
		err = plugin.CodeErrorf(types.ErrTryAgainLater, "repeat the call", "this host's lease of etcd ran out before the call came to its end")
	}
	return err
}

// forget has the next hostLease ask etcd.
func (p *pool) forget() error { return state.Remove(p.HostFile()) }

// host is what etcd has of this host's name: nothing if all is zero.
type host struct {
	machine
	lease    clientv3.LeaseID
	revision int64 // at which that was written
}

// findHost asks etcd for this host's name. One that another machine has is refused.
func (p *pool) findHost(ctx context.Context) (host, error) {
	answer, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(p.space.host(p.Host))}})
	if err != nil {
		return host{}, err
	}
	return p.readHost(answer)
}

func (p *pool) readHost(answer *clientv3.TxnResponse) (is host, err error) {
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		is.lease, is.revision = clientv3.LeaseID(kv.Lease), kv.ModRevision
		if json.Unmarshal(kv.Value, &is.machine) == nil {
			err = p.refuseOther(is.machine)
		}
	}
	return is, err
}

// refuseOther refuses a host of the same name that is another machine.
func (p *pool) refuseOther(m machine) error {
	if m.ID == "" || m.ID == thisMachine() {
		return nil
	}
	return plugin.ConfigError(fmt.Sprintf("set ipam.etcd.host to a name of its own on one of the two. If the other one is gone for good, its name and addresses are free %v after it was last heard of, "+
		"or after `etcdctl lease revoke` of the lease that `etcdctl get -w json %s` shows", p.Grace, p.space.host(p.Host)),
		"another machine is called %q in etcd: its machine-id is %s, ours %s", p.Host, m.ID, thisMachine())
}

// renew keeps the lease for another grace.
func (p *pool) renew(ctx context.Context, id clientv3.LeaseID) error {
	ctx, end := context.WithTimeout(ctx, p.Timeout)
	defer end()
	for {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), p.attempt)
		left, err := p.KeepAliveOnce(attempt, id)
		cancel()
		if err == nil {
			return p.WriteHost(notes.Joined{Host: p.Host, Lease: int64(id), Seconds: left.TTL, Renewed: time.Now()})
		}
		if !mayHelpToRepeat(err) {
			return p.explain(err)
		}
		if err := p.wait(ctx, err); err != nil {
			return err
		}
	}
}

// join gets this host a lease, and takes with it all addresses again that its attachments have. Not before that the lease is used by others.
func (p *pool) join(ctx context.Context) (clientv3.LeaseID, error) {
	before, err := p.findHost(ctx)
	if err != nil {
		return 0, err
	}
	granted, err := p.grant(ctx, p.Grace)
	if err != nil {
		return 0, err
	}
	m := machine{ID: thisMachine(), Since: time.Now().UTC(), Joins: true}
	revision, err := p.putHost(ctx, m, granted.ID, before.revision)
	if err == nil {
		err = p.takeAgain(ctx, granted.ID, hasRevision(p.space.host(p.Host), revision))
	}
	if err == nil {
		m.Joins = false
		_, err = p.putHost(ctx, m, granted.ID, revision)
	}
	if err != nil {
		return 0, err
	}
	return granted.ID, p.WriteHost(notes.Joined{Host: p.Host, Lease: int64(granted.ID), Seconds: granted.TTL, Renewed: time.Now()})
}

// putHost writes what this host is, unless something was written of it after a revision, 0 if there was nothing. It returns the new revision.
func (p *pool) putHost(ctx context.Context, m machine, lease clientv3.LeaseID, after int64) (revision int64, err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return 0, err
	}
	key := p.space.host(p.Host)
	answer, err := p.commit(ctx, transaction{
		compare:   []clientv3.Cmp{hasRevision(key, after)},
		then:      []clientv3.Op{clientv3.OpPut(key, string(text), clientv3.WithLease(lease))},
		otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	if err != nil {
		return 0, err
	}
	if answer.Succeeded {
		return answer.Header.Revision, nil
	}
	is, err := p.readHost(answer)
	if err == nil && (is.lease != lease || is.Joins != m.Joins) { // else the answer to an earlier attempt was lost
		err = joinsTwice()
	}
	return is.revision, err
}

func joinsTwice() error {
	return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat the call", "another call for this host gets it a lease of etcd")
}

// grant gets a lease that nothing hangs on yet.
func (p *pool) grant(ctx context.Context, left time.Duration) (*clientv3.LeaseGrantResponse, error) {
	ctx, end := context.WithTimeout(ctx, p.Timeout)
	defer end()
	for {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), p.attempt)
		granted, err := p.Grant(attempt, int64(left/time.Second))
		cancel()
		if err == nil || !mayHelpToRepeat(err) {
			return granted, p.explain(err)
		}
		if err := p.wait(ctx, err); err != nil { // a lease whose answer is lost runs out by itself
			return nil, err
		}
	}
}

// takeAgain takes what attachments hold with a new lease, but for what another host has been given meanwhile. That is noted. What etcd carries out
// of it when the condition is no more does nothing.
func (p *pool) takeAgain(ctx context.Context, lease clientv3.LeaseID, condition clientv3.Cmp) error {
	keys, err := p.Keys(p.network, "held")
	if err != nil {
		return err
	}
	const atOnce = 30 // of a transaction's 128 operations
	for some := range slices.Chunk(keys, atOnce) {
		lost, err := p.takeSome(ctx, some, lease, condition)
		if err == nil {
			err = p.noteLost(lost)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeSome takes what is noted for some attachments, and returns for each which of it is another's.
func (p *pool) takeSome(ctx context.Context, keys []plugin.Key, lease clientv3.LeaseID, conditions ...clientv3.Cmp) (lost map[plugin.Key][]string, err error) {
	type one struct {
		k plugin.Key
		a netip.Addr
	}
	var all []one
	t := transaction{compare: conditions}
	for _, k := range keys {
		known, _ := p.ReadHeld(k)
		for _, a := range known.Addresses {
			o, key := p.owner(k), p.space.address(a)
			put, isLive := p.puts(o, a, lease), isAbsent(p.space.ended(o, known.Since))
			ifMine := clientv3.OpTxn([]clientv3.Cmp{hasValue(key, o.value(a)), isLive}, put, []clientv3.Op{clientv3.OpGet(key)})
			all, t.then = append(all, one{k, a}), append(t.then, clientv3.OpTxn([]clientv3.Cmp{isAbsent(key), isLive}, put, []clientv3.Op{ifMine}))
		}
	}
	answer, err := p.commit(ctx, t)
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		return nil, joinsTwice()
	}
	lost = map[plugin.Key][]string{}
	for i, each := range all {
		free := answer.Responses[i].GetResponseTxn()
		if free.Succeeded || free.Responses[0].GetResponseTxn().Succeeded {
			continue
		}
		for _, by := range free.Responses[0].GetResponseTxn().Responses[0].GetResponseRange().Kvs { // none if its DEL was faster
			lost[each.k] = append(lost[each.k], fmt.Sprintf("%s is held by %s", each.a, parseOwner(by.Value)))
		}
	}
	return lost, nil
}

func (p *pool) noteLost(lost map[plugin.Key][]string) error {
	for k, list := range lost {
		known, isHeld := p.ReadHeld(k)
		if !isHeld { // its DEL was faster
			continue
		}
		known.Lost = list
		if err := p.WriteHeld(k, known); err != nil {
			return err
		}
		p.request.WarnOf(fmt.Errorf("this host was not heard of for longer than %v; restart %s: %s", p.Grace, p.owner(k), strings.Join(list, ", ")))
	}
	return nil
}
