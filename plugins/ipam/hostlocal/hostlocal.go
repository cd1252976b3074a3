// Package hostlocal hands out addresses of ranges and keeps them in files of the node: the IPAM plugin host-local.
package hostlocal

import (
	"context"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Plugin is host-local.
type Plugin struct{}

// Add takes one address of each range set, all or none.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, err := load(r)
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
	if err := r.Step(ctx, "take addresses from "+c.store.Path()); err != nil {
		return nil, err
	}
	c.store.Netns = r.Netns
	leases, err := c.store.Allocate(ctx, r.Key, c.Pools)
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, l := range leases {
		addresses = append(addresses, l.Address)
	}
	return c.Result(addresses, dns), nil
}

// Del gives back all addresses of the attachment, also those of ranges that
// are no longer configured. It needs no more of the configuration than dataDir.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	store := storeOf(r)
	if store == nil {
		return nil
	}
	_, err := store.Release(ctx, r.Key)
	return err
}

const lost = "its lease was removed by someone else: " + plugin.RepairRemedy + ", so that it gets an address of its own again"

// Mend looks at the lease file of each address in prevResult that lies in the
// configured ranges. Without such an address the attachment must hold any.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := load(r)
	if err != nil {
		return err
	}
	isLooked := false
	for _, ip := range result.PrefixesOf(r.PrevResult, r.IfName) {
		a := ip.Addr()
		if !slices.ContainsFunc(c.Pools, func(p ranges.Pool) bool { return p.Contains(a) }) {
			continue
		}
		isLooked = true
		m.Mend(checkLease(a, r.Key, c.store), "take the address "+a.String()+" in "+c.store.Path(),
			func() error { return c.store.Restore(ctx, r.Key, []netip.Addr{a}) })
	}
	if isLooked {
		return nil
	}
	leases, err := c.store.HeldBy(ctx, r.Key)
	if err == nil && len(leases) == 0 {
		return plugin.Errorf(lost, "host-local: Failed to find address added by container %s for interface %s in %s", r.ContainerID, r.IfName, c.store.Path())
	}
	return err
}

// checkLease checks that the attachment holds the address.
func checkLease(address netip.Addr, a plugin.Key, store *lease.Store) error {
	by, isLease, err := store.OwnerOf(address)
	switch {
	case err != nil:
		return err
	case !isLease:
		return plugin.Errorf(lost, "host-local: %s of %s is not held in %s", address, lease.Name(a), store.Path())
	case by != a && by != plugin.Key{Network: a.Network, ContainerID: a.ContainerID}:
		return plugin.Errorf(lost, "host-local: %s is not held by %s but by %s", address, lease.Name(a), lease.Name(by))
	}
	return nil
}

// Status reports whether the configuration is valid and a lease could be written. A pool without a free address is no failure: the
// addresses of running containers come back, while a runtime would take the whole node out of service.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	c, err := load(r)
	if err != nil {
		return err
	}
	if _, err := c.DNS(); err != nil {
		return err
	}
	if err := c.store.Writable(); err != nil {
		return plugin.CodeErrorf(types.ErrPluginNotAvailable, "make that directory writable and make sure its disk is not full, or set ipam.dataDir to another one",
			"no lease can be written: %w", err)
	}
	return nil
}

// Stores returns the directory of the leases. Those in the old form name a
// container only, and are held while any attachment of it is valid.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{lease.Dir(dataDir(r.Config.Object("ipam")))}
}

// Pools returns what a configuration hands out.
func (Plugin) Pools(config *conf.Object) ([]ranges.Pool, error) {
	c, err := load(&plugin.Request{Command: plugin.Status, Key: plugin.Key{Network: "any"}, Config: config, Version: plugin.CurrentVersion})
	if err != nil {
		return nil, err
	}
	return c.Pools, nil
}

// storeOf returns the store that DEL works on, nil if the configuration names a place where Add would have put nothing.
func storeOf(r *plugin.Request) *lease.Store {
	store, err := lease.NewStore(dataDir(r.Config.Object("ipam")), r.Network, r.Results)
	if err != nil {
		return nil
	}
	return store
}
