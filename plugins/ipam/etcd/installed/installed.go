// Package installed is the plugin etcd as cnictl has it, which does not link the client of etcd: what asks etcd is done by the program that is
// installed, what this host holds is read from its notes.
package installed

import (
	"context"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/ipam/etcdpool"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/delegate"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// Plugin is etcd.
type Plugin struct{ settings.Configuration }

// find returns the program.
func find(r *plugin.Request) (*delegate.Delegate, error) {
	own := *r
	own.Plugins = nil // none of this process
	return delegate.Find(&own, etcdpool.Program)
}

func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	d, err := find(r)
	if err != nil {
		return nil, err
	}
	return d.Add(ctx, r)
}

func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	d, err := find(r)
	if err != nil {
		return err
	}
	return d.Del(ctx, r)
}

func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	d, err := find(r)
	if err != nil {
		return err
	}
	return d.Status(ctx, r)
}

// GC implements plugin.Collector.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	d, err := find(r)
	if err != nil {
		return err
	}
	return d.GC(ctx, r)
}

// Mend compares with this host's notes, so that a repair of many attachments does not wait for etcd. The program compares with etcd.
func (Plugin) Mend(_ context.Context, r *plugin.Request, _ *plugin.Mender) error {
	const restart = "restart the container, so that it gets an address of its own"
	pools, err := Plugin{}.Pools(r.Config)
	if err != nil {
		return err
	}
	has, known := notes.Of(r).ReadHeld(r.Key)
	if !known {
		return plugin.Errorf(restart, "etcd: this host does not know of an address of %s", r.Key)
	}
	if len(has.Lost) > 0 {
		return plugin.Errorf(restart, "etcd: %s", has.Lost[0])
	}
	held := map[string]bool{}
	for _, a := range has.Addresses {
		held[a.String()] = true
	}
	for _, a := range result.PrefixesOf(r.PrevResult, r.IfName) {
		for _, p := range pools {
			if p.Contains(a.Addr()) && !held[a.Addr().String()] {
				return plugin.Errorf(restart, "etcd: this host does not know that %s has %s", r.Key, a.Addr())
			}
		}
	}
	return nil
}
