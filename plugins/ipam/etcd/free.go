package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
)

// freeAll frees all addresses of an attachment, but for those that others have by now. It frees what it has read and no other revision: a
// transaction that is carried out late must not free what the same attachment got meanwhile.
func (p *pool) freeAll(ctx context.Context, k plugin.Key) error {
	o, seen := p.owner(k), p.ReadSeen(p.Host)
	for {
		answer, err := p.commit(ctx, transaction{then: append([]clientv3.Op{clientv3.OpGet(p.space.attachment(o), clientv3.WithPrefix(), clientv3.WithKeysOnly())}, p.getPast()...)})
		if err != nil {
			return err
		}
		p.outdated = p.isOutdated(seen, answer)
		keys := answer.Responses[0].GetResponseRange().Kvs
		if len(keys) == 0 {
			return nil
		}
		var t transaction
		for _, kv := range keys {
			then := []clientv3.Op{clientv3.OpDelete(string(kv.Key))}
			if _, a, ok := p.space.parseHeld(o.Host, string(kv.Key)); ok {
				key := p.space.address(a) // both were written at once
				then = append(then, clientv3.OpTxn([]clientv3.Cmp{hasRevision(key, kv.ModRevision)}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
			}
			t.then = append(t.then, clientv3.OpTxn([]clientv3.Cmp{hasRevision(string(kv.Key), kv.ModRevision)}, then, nil))
		}
		if answer, err = p.commit(ctx, t); err != nil {
			return err
		}
		isChanged := func(each *pb.ResponseOp) bool { return !each.GetResponseTxn().Succeeded }
		if !slices.ContainsFunc(answer.Responses, isChanged) {
			return nil
		}
	}
}

// remembered is for how long etcd knows that an ADD is over.
const remembered = 24 * time.Hour

// end has etcd carry out nothing more of an attachment's ADD that began at a time: a member that was paused or cut off may have a transaction of it that
// nobody waits for any more.
func (p *pool) end(ctx context.Context, k plugin.Key, began time.Time) error {
	if p.ending == 0 {
		granted, err := p.grant(ctx, remembered)
		if err != nil {
			return err
		}
		p.ending = granted.ID
	}
	_, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpPut(p.space.ended(p.owner(k), began), "", clientv3.WithLease(p.ending))}})
	return err
}

// free frees what an attachment has, of which this was noted and whose file in open is locked and begun. It first ends the ADD, where etcd may
// carry out more of it, or another call may be taking its addresses again as this host's lease has run out.
func (p *pool) free(ctx context.Context, k plugin.Key, had notes.Held) error {
	if had.Unsure || len(had.Addresses) > 0 && p.freshLease() == 0 {
		began, err := p.Began(k)
		if err == nil {
			err = p.end(ctx, k, began)
		}
		if err != nil {
			return p.Failed(err)
		}
	}
	return p.freeAll(ctx, k)
}

// finish frees what an attachment has, and removes its files.
func (p *pool) finish(ctx context.Context, k plugin.Key, had notes.Held) error {
	if err := state.Remove(p.HeldFile(k)); err != nil { // first, so that no call takes it again that begins now
		return p.Failed(err)
	}
	if err := p.free(ctx, k, had); err != nil {
		return err
	}
	return state.Remove(p.OpenFile(k))
}

// atOnce is how much of what is left open a call catches up on, so that it does not take long itself.
const atOnce = 16

// catchUp frees what killed calls have left, and what could not be freed while etcd was not to be reached: the first of it, or all if most is 0.
func (p *pool) catchUp(ctx context.Context, most int) error {
	open, err := p.Keys(p.network, "open")
	if err != nil {
		return err
	}
	for i, k := range open {
		if most > 0 && i == most {
			break
		}
		lock, err := state.Try(p.OpenFile(k)) // it must not be made anew: that it is gone says that all is well
		if lock != nil {
			err = p.settle(ctx, k)
			lock.Release()
		}
		if err != nil { // the next one would fail as this one, after as long a time
			return err
		}
	}
	return nil
}

// settle does what a call for an attachment has not come to do, whose file in open is locked.
func (p *pool) settle(ctx context.Context, k plugin.Key) error {
	if !p.IsOpen(k) { // it had not begun
		return state.Remove(p.OpenFile(k))
	}
	return p.finish(ctx, k, notes.Held{Unsure: true})
}
