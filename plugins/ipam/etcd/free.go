package etcd

import (
	"context"
	"errors"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// freeAll frees all addresses of an attachment, but for those that others have by now.
func (p *pool) freeAll(ctx context.Context, k plugin.Key) error {
	o := p.owner(k)
	answer, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(p.space.held(o), clientv3.WithPrefix(), clientv3.WithKeysOnly())}})
	if err != nil {
		return err
	}
	var t transaction
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		t.then = append(t.then, clientv3.OpDelete(string(kv.Key)))
		if _, a, ok := p.space.parseHeld(o.Host, string(kv.Key)); ok {
			key := p.space.address(a)
			t.then = append(t.then, clientv3.OpTxn([]clientv3.Cmp{hasValue(key, o.value(a))}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
		}
	}
	if len(t.then) == 0 {
		return nil
	}
	_, err = p.commit(ctx, t)
	return err
}

// settling is for how long a transaction may still be carried out after nobody waits for its answer.
const settling = 30 * time.Second

// finish frees what an attachment has, whose file in open is locked, and then removes its files. After an ADD whose answer may be lost the file
// stays for a while, so that it is freed once more.
func (p *pool) finish(ctx context.Context, k plugin.Key, isUncertain bool) error {
	if err := state.Remove(p.HeldFile(k)); err != nil {
		return p.Failed(err)
	}
	if err := p.freeAll(ctx, k); err != nil {
		return err
	}
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
	var errs []error
	for i, k := range open {
		if most > 0 && i == most || ctx.Err() != nil {
			break
		}
		lock, err := state.Try(p.OpenFile(k)) // it must not be made anew: that it is gone says that all is well
		if lock != nil {
			err = p.finish(ctx, k, true)
			lock.Release()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
