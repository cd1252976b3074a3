package etcd

import (
	"context"
	"os"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// freeAll frees all addresses of an attachment, but for those that others have by now, and reports whether there were any. It frees what it has
// read and no other revision: a transaction that is carried out late must not free what the same attachment got meanwhile.
func (p *pool) freeAll(ctx context.Context, k plugin.Key) (found bool, err error) {
	o := p.owner(k)
	for {
		answer, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(p.space.held(o), clientv3.WithPrefix(), clientv3.WithKeysOnly())}})
		if err != nil {
			return found, err
		}
		held := answer.Responses[0].GetResponseRange().Kvs
		if len(held) == 0 {
			return found, nil
		}
		found = true
		var t transaction
		for _, kv := range held {
			then := []clientv3.Op{clientv3.OpDelete(string(kv.Key))}
			if _, a, ok := p.space.parseHeld(o.Host, string(kv.Key)); ok {
				key := p.space.address(a) // both were written at once
				then = append(then, clientv3.OpTxn([]clientv3.Cmp{hasRevision(key, kv.ModRevision)}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
			}
			t.then = append(t.then, clientv3.OpTxn([]clientv3.Cmp{hasRevision(string(kv.Key), kv.ModRevision)}, then, nil))
		}
		if answer, err = p.commit(ctx, t); err != nil {
			return found, err
		}
		isChanged := func(each *pb.ResponseOp) bool { return !each.GetResponseTxn().Succeeded }
		if !slices.ContainsFunc(answer.Responses, isChanged) {
			return found, nil
		}
	}
}

// settling is for how long a transaction may still be carried out after nobody waits for its answer.
const settling = 30 * time.Second

// finish frees what an attachment has, whose file in open is locked, and then removes its files. That file stays for a while, so that it is freed once
// more, after an ADD whose answer may be lost, and where etcd has nothing of what is noted: this host's lease has run out, and another call may
// be taking it again.
func (p *pool) finish(ctx context.Context, k plugin.Key, isUncertain, isNoted bool) error {
	if err := state.Remove(p.HeldFile(k)); err != nil {
		return p.Failed(err)
	}
	found, err := p.freeAll(ctx, k)
	if err != nil {
		return err
	}
	isUncertain = isUncertain || isNoted && !found
	file, err := os.Stat(p.OpenFile(k))
	if isUncertain && err == nil && time.Since(file.ModTime()).Abs() < settling {
		return nil
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
	return p.finish(ctx, k, true, false)
}
