package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	ID     string    `json:"machineID"`        // machine-id(5), "" if it has none
	Number string    `json:"number,omitempty"` // its own, which tells clones apart
	Since  time.Time `json:"since"`
	Joins  bool      `json:"joins,omitempty"` // it has not taken yet what its attachments have
}

func thisMachine() string {
	text, _ := state.Read("/etc/machine-id")
	return strings.TrimSpace(string(text))
}

// hostLease returns the lease of etcd on which all keys of this host hang. Nothing is asked if it was renewed a short time ago.
func (p *pool) hostLease(ctx context.Context) (clientv3.LeaseID, error) {
	if id := p.freshLease(); id != 0 {
		return id, nil
	}
	id, _, err := p.meet(ctx, false)
	return id, err
}

// meet compares what etcd knows of this host with what the host knows, and renews its lease when a tenth of the grace has passed. Where etcd was
// restored, or the host has no lease, it writes back first what its attachments have. Another call may have done all that; always compares even so.
func (p *pool) meet(ctx context.Context, always bool) (clientv3.LeaseID, host, error) {
	lock, err := state.LockRun(ctx, p.lockFile())
	if err != nil {
		return 0, host{}, err
	}
	defer lock.Release()
	fresh := p.freshLease()
	if fresh != 0 && !always {
		return fresh, host{}, nil
	}
	is, err := p.findHost(ctx)
	switch {
	case err != nil || is.restored.ID != "":
	case is.isForgotten() || is.isRestored:
		is.restored, err = p.declare(ctx)
	case is.past == 0:
		err = p.beginPast(ctx)
	}
	if err != nil {
		return 0, is, err
	}
	if is.isForgotten() || is.restored.ID != "" && is.restored.ID != is.seen.Restored {
		id, err := p.join(ctx, is)
		return id, is, err
	}
	id := clientv3.LeaseID(p.ReadHost().Lease)
	if id == 0 && !is.Joins { // the file was lost, or this host is new
		id = is.lease
	}
	if id != 0 && id != fresh {
		err = p.renew(ctx, id)
	}
	if id == 0 || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		id, err := p.join(ctx, is)
		return id, is, err
	}
	if err == nil && is.mark != p.mark() { // after a reboot
		err = p.sign(ctx, is)
	}
	return id, is, err
}

func (p *pool) lockFile() string { return "etcd-" + p.network + ".lock" }

// keepName has this host go by the name that it has in etcd, whatever its configuration says by now, as long as it holds something there.
func (p *pool) keepName(ctx context.Context) error {
	if is := p.ReadHost().Host; is == "" || is == p.Host {
		return nil
	}
	lock, err := state.LockRun(ctx, p.lockFile())
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

// meetIfJoined meets etcd if this host has a lease.
func (p *pool) meetIfJoined(ctx context.Context) (is host, err error) {
	if p.ReadHost().Lease == 0 {
		return p.findHost(ctx)
	}
	_, is, err = p.meet(ctx, true)
	return is, err
}

// mustKeep refuses addresses that were taken with a lease which is this host's no more. The noted ones are taken again with a new lease; a call that
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
	mark     mark
	markedAt int64 // the revision
	restored restoration

	past       int64 // the revision up to which all is of one past, 0 if the network is new
	isRestored bool  // it was restored since, as its log says, and nobody has said so yet

	cluster uint64
	seen    notes.Seen // what this host knew before it asked
}

// findHost asks etcd for this host's name. One that another machine has is refused.
func (p *pool) findHost(ctx context.Context) (host, error) {
	seen := p.ReadSeen(p.Host)
	answer, err := p.commit(ctx, transaction{then: []clientv3.Op{
		clientv3.OpGet(p.space.host(p.Host)),
		clientv3.OpGet(p.space.mark(p.Host)),
		clientv3.OpGet(p.space.restoration()),
		clientv3.OpGet(p.space.past()),
	}})
	if err != nil {
		return host{}, err
	}
	is, err := p.readHost(answer)
	if err != nil {
		return is, err
	}
	for _, kv := range answer.Responses[1].GetResponseRange().Kvs {
		_ = json.Unmarshal(kv.Value, &is.mark)
		is.markedAt = kv.ModRevision
	}
	is.seen, is.cluster, is.restored = seen, answer.Header.ClusterId, parseRestoration(answer.Responses[2].GetResponseRange().Kvs)
	is.past = revisionOf(answer.Responses[3])
	if err := p.refuseCopy(is); err != nil || is.restored.ID != "" {
		return is, err
	}
	is.isRestored, err = p.isRestored(ctx, is.past)
	return is, err
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
	if m.ID != "" && m.ID != thisMachine() {
		return p.otherMachine("its machine-id is " + m.ID + ", ours " + thisMachine())
	}
	if m.Number != "" && m.Number != p.number {
		return p.otherMachine("its number is " + m.Number + ", ours " + p.number)
	}
	return nil
}

func (p *pool) otherMachine(difference string) error {
	return plugin.ConfigError(fmt.Sprintf("set ipam.etcd.host to a name of its own on one of the two. If the other one is gone for good, its name and addresses are free %v after it was last heard of, "+
		"or after `etcdctl lease revoke` of the lease that `etcdctl get -w json %s` shows", p.Grace, p.space.host(p.Host)),
		"another machine is called %q in etcd: %s", p.Host, difference)
}

// renew keeps the lease for another grace.
func (p *pool) renew(ctx context.Context, id clientv3.LeaseID) error {
	left, err := repeat(ctx, p.cluster, func(attempt context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return p.KeepAliveOnce(attempt, id)
	})
	if err != nil {
		return err
	}
	return p.WriteHost(notes.Joined{Host: p.Host, Lease: int64(id), Seconds: left.TTL, Renewed: time.Now()})
}

// join gets this host a lease, and takes with it all addresses again that its attachments have. Not before that the lease is used by others.
func (p *pool) join(ctx context.Context, before host) (clientv3.LeaseID, error) {
	granted, err := p.grant(ctx, p.Grace)
	if err != nil {
		return 0, err
	}
	m := machine{ID: thisMachine(), Number: p.number, Since: time.Now().UTC(), Joins: true}
	revision, err := p.putHost(ctx, m, granted.ID, before.revision)
	isRestored := before.restored.ID != ""
	if err == nil && isRestored {
		err = p.freeForgotten(ctx)
	}
	if err == nil {
		err = p.takeAgain(ctx, granted.ID, isRestored, hasRevision(p.space.host(p.Host), revision))
	}
	if err == nil {
		m.Joins = false
		_, err = p.putHost(ctx, m, granted.ID, revision)
	}
	if err == nil {
		err = p.sign(ctx, before)
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
	if err == nil && is.revision == 0 && after != 0 { // the lease that it hung on has run out since it was read
		return p.putHost(ctx, m, lease, 0)
	}
	if err == nil && (is.lease != lease || is.Joins != m.Joins) { // else the answer to an earlier attempt was lost
		err = joinsTwice()
	}
	return is.revision, err
}

func joinsTwice() error {
	return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat the call", "another call for this host gets it a lease of etcd")
}

// grant gets a lease that nothing hangs on yet. One whose answer is lost runs out by itself.
func (p *pool) grant(ctx context.Context, left time.Duration) (*clientv3.LeaseGrantResponse, error) {
	return repeat(ctx, p.cluster, func(attempt context.Context) (*clientv3.LeaseGrantResponse, error) {
		return p.Grant(attempt, int64(left/time.Second))
	})
}

// takeAgain takes what attachments hold with a new lease, but for what another attachment has been given meanwhile. That is noted as lost, unless etcd
// was restored: what it has of the other may be old. A transaction that etcd carries out when the condition is no more does nothing.
func (p *pool) takeAgain(ctx context.Context, lease clientv3.LeaseID, isRestored bool, condition clientv3.Cmp) error {
	keys, err := p.Keys(p.network, "held")
	if err != nil {
		return err
	}
	all := map[plugin.Key][]string{}
	for _, some := range p.batches(keys) {
		lost, err := p.takeSome(ctx, some, lease, condition)
		if err == nil && !isRestored {
			err = p.noteLost(lost)
		}
		if err != nil {
			return err
		}
		maps.Copy(all, lost)
	}
	if isRestored && len(all) > 0 {
		return notYet(all)
	}
	return nil
}

// batches divides attachments into parts, each for one transaction: it has 128 operations, and may not write a key twice, as two attachments with one
// address would.
func (p *pool) batches(keys []plugin.Key) (list [][]plugin.Key) {
	const most = 60 // addresses
	in := map[netip.Addr]bool{}
	for _, k := range keys {
		known, _ := p.ReadHeld(k)
		isIn := func(a netip.Addr) bool { return in[a] }
		if len(list) == 0 || len(in)+len(known.Addresses) > most || slices.ContainsFunc(known.Addresses, isIn) {
			list, in = append(list, nil), map[netip.Addr]bool{}
		}
		list[len(list)-1] = append(list[len(list)-1], k)
		for _, a := range known.Addresses {
			in[a] = true
		}
	}
	return list
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
			puts, isLive := p.puts(o, a, lease), isAbsent(p.space.ended(o, known.Since))
			ifMine := clientv3.OpTxn([]clientv3.Cmp{hasValue(key, o.value(a)), isLive}, puts, []clientv3.Op{clientv3.OpGet(key)})
			all, t.then = append(all, one{k, a}), append(t.then, clientv3.OpTxn([]clientv3.Cmp{isAbsent(key), isLive}, puts, []clientv3.Op{ifMine}))
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
