package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// Report implements shared.Store. Of this host it says more than of others.
func (n Network) Report(ctx context.Context) (*shared.Report, error) {
	p, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	c, err := settings.Load(p.request)
	if err != nil {
		return nil, err
	}
	ctx, end := p.limit(ctx)
	defer end()
	report, pool, err := p.report(ctx, clientv3.OpGet(p.space.host(""), clientv3.WithPrefix()),
		clientv3.OpGet(p.space.root+"ipv4/", clientv3.WithPrefix()), clientv3.OpGet(p.space.root+"ipv6/", clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	report.Pools = usage(c.Pools, pool)
	return report, nil
}

// Renew implements shared.Store.
func (n Network) Renew(ctx context.Context) (*shared.Report, error) {
	p, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	keys, err := p.Keys(p.network, "held")
	if err == nil && len(keys) > 0 {
		_, _, err = p.meet(ctx, true)
	}
	if err == nil {
		err = p.catchUp(ctx, 0)
	}
	if err != nil {
		return nil, err
	}
	report, _, err := p.report(ctx, clientv3.OpGet(p.space.host(p.Host)))
	return report, err
}

// report says what there is of some hosts, and of this one's attachments. It returns what else is read.
func (p *pool) report(ctx context.Context, hosts clientv3.Op, more ...clientv3.Op) (*shared.Report, []*mvccpb.KeyValue, error) {
	answer, err := p.commit(ctx, transaction{then: append([]clientv3.Op{hosts, clientv3.OpGet(p.space.attachments(p.Host), clientv3.WithPrefix())}, more...)})
	if err != nil {
		return nil, nil, err
	}
	part := func(i int) []*mvccpb.KeyValue { return answer.Responses[i].GetResponseRange().Kvs }
	r := &shared.Report{Network: p.network, Host: p.Host}
	for _, kv := range part(0) {
		h, err := p.hostOf(ctx, kv)
		if err != nil {
			return nil, nil, err
		}
		r.Hosts = append(r.Hosts, h)
	}
	for _, kv := range part(1) {
		if o, a, ok := p.space.parseHeld(p.Host, string(kv.Key)); ok {
			since, _ := time.Parse(time.RFC3339, string(kv.Value))
			r.Held = append(r.Held, shared.Held{ContainerID: o.ContainerID, IfName: o.IfName, Address: a, Since: since})
		}
	}
	var read []*mvccpb.KeyValue
	for i := range more {
		read = append(read, part(2+i)...)
	}
	return r, read, p.addNotes(r)
}

// addNotes adds what only this host knows: what it has lost, and what must be freed.
func (p *pool) addNotes(r *shared.Report) error {
	keys, err := p.Keys(p.network, "held")
	if err != nil {
		return err
	}
	for _, k := range keys {
		known, _ := p.ReadHeld(k)
		for _, lost := range known.Lost {
			r.Held = append(r.Held, shared.Held{ContainerID: k.ContainerID, IfName: k.IfName, Lost: lost})
		}
	}
	open, err := p.Keys(p.network, "open")
	for _, k := range open {
		r.Open = append(r.Open, shared.Held{ContainerID: k.ContainerID, IfName: k.IfName})
	}
	return err
}

func (p *pool) hostOf(ctx context.Context, kv *mvccpb.KeyValue) (h shared.Host, err error) {
	var m machine
	_ = json.Unmarshal(kv.Value, &m)
	h = shared.Host{Name: strings.TrimPrefix(string(kv.Key), p.space.host("")), MachineID: m.ID, Since: m.Since, Lease: fmt.Sprintf("%x", kv.Lease)}
	left, err := p.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	if err != nil {
		return h, p.explain(err)
	}
	h.Left, h.Grace = left.TTL, left.GrantedTTL
	return h, nil
}

// usage counts the addresses that are taken of each pool.
func usage(pools []ranges.Pool, all []*mvccpb.KeyValue) (list []shared.Pool) {
	for _, each := range pools {
		list = append(list, shared.Pool{Subnet: each.Ranges[0].Subnet.String(), Range: each.String(), Size: each.Size(), By: map[string]int{}})
	}
	for _, kv := range all {
		v := parseOwner(kv.Value)
		i := slices.IndexFunc(pools, func(each ranges.Pool) bool { return each.Contains(v.Address) })
		if i >= 0 {
			list[i].Used++
			list[i].By[v.Host]++
		}
	}
	return list
}
