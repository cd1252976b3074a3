package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// store is what etcd has of this host and a network, for GC.
type store struct{ request *plugin.Request }

func (s store) Held(ctx context.Context, network string) (list []plugin.Held, err error) {
	p, err := open(ctx, s.request)
	if err != nil {
		return nil, err
	}
	defer p.close()
	ctx, end := p.limit(ctx)
	defer end()
	if _, err := p.findHost(ctx); err != nil { // what another machine of this name holds is not ours
		return nil, err
	}
	answer, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(p.space.attachments(p.Host), clientv3.WithPrefix())}})
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		o, a, ok := p.space.parseHeld(p.Host, string(kv.Key))
		if !ok {
			continue
		}
		since, _ := time.Parse(time.RFC3339, string(kv.Value))
		list = append(list, plugin.Held{Key: o.key(p.network), What: "address " + a.String(), Since: since, Own: a})
	}
	return list, nil
}

// Release frees all that the attachments in the list hold.
func (s store) Release(ctx context.Context, list []plugin.Held) error {
	p, err := open(ctx, s.request)
	if err != nil {
		return err
	}
	defer p.close()
	return releaseEach(ctx, list, p.release)
}

// releaseEach releases the attachments in a list, each once.
func releaseEach(ctx context.Context, list []plugin.Held, release func(context.Context, plugin.Key) error) error {
	done := map[plugin.Key]bool{}
	var errs []error
	for _, h := range list {
		if done[h.Key] {
			continue
		}
		done[h.Key] = true
		if err := release(ctx, h.Key); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Key, err))
			if plugin.IsTryAgain(err) { // no member answers: the next one would wait as long
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (p *pool) release(ctx context.Context, k plugin.Key) error {
	lock, had, err := p.End(ctx, k)
	if err != nil {
		return p.Failed(err)
	}
	defer lock.Release()
	return p.finish(ctx, k, had)
}
