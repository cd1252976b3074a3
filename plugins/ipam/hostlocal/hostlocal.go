// Package hostlocal hands out addresses of ranges and keeps them in files of
// the node: the IPAM plugin host-local.
package hostlocal

import (
	"context"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is host-local.
type Plugin struct{}

// Add takes one address of each range set, all or none.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	c, err := load(r)
	if err != nil {
		return nil, err
	}
	result := &types100.Result{Routes: c.routes}
	if c.resolvConf != "" {
		if result.DNS, err = readResolvConf(c.resolvConf); err != nil {
			return nil, err
		}
	}
	pools, err := c.pools()
	if err != nil {
		return nil, err
	}
	store, err := c.store(r.Network)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "take addresses from "+store.Path()); err != nil {
		return nil, err
	}
	leases, err := store.Allocate(ctx, owner(r), pools)
	if err != nil {
		return nil, explain(err, c, r)
	}
	for i, l := range leases {
		result.IPs = append(result.IPs, c.sets[i].result(l.Address))
	}
	return result, nil
}

// Del gives back all addresses of the attachment, also those of ranges that
// are no longer configured. It needs no more of the configuration than dataDir.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	store := storeOf(r)
	if store == nil {
		return nil
	}
	if _, err := store.Release(ctx, owner(r)); err != nil {
		return storeError(err, store, "give back the addresses of %s", lease.Name(owner(r)))
	}
	return nil
}

// Check looks at the lease file of each address in prevResult that lies in the
// configured ranges. Without such an address the attachment must hold any.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	c, err := loadRanges(r)
	if err != nil {
		return err
	}
	store, err := c.store(r.Network)
	if err != nil {
		return err
	}
	if addresses := c.own(r); len(addresses) > 0 {
		return compare(addresses, owner(r), store)
	}
	held, err := store.HeldBy(ctx, owner(r))
	if err != nil {
		return storeError(err, store, "look up the addresses of %s", lease.Name(owner(r)))
	}
	if len(held) == 0 {
		return plugin.Errorf(lost, "host-local: Failed to find address added by container %s for interface %s in %s", r.ContainerID, r.IfName, store.Path())
	}
	return nil
}

// Status tells whether the configuration is valid and a lease could be
// written. A pool without a free address is no failure: the addresses of
// running containers come back, while a runtime would take the whole node out
// of service.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	c, err := loadRanges(r)
	if err == nil && c.resolvConf != "" {
		_, err = readResolvConf(c.resolvConf)
	}
	if err != nil {
		return err
	}
	store, err := c.store(r.Network)
	if err != nil {
		return err
	}
	if err := store.Writable(); err != nil {
		return &types.Error{
			Code: types.ErrPluginNotAvailable, Msg: "no lease can be written: " + err.Error(),
			Details: "make that directory writable and make sure its disk is not full, or set ipam.dataDir to another one",
		}
	}
	return nil
}

// GC removes the leases of attachments that are not valid any more. Leases in
// the old form name a container only and stay while any of its is valid.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	if !r.HasValid {
		return nil
	}
	store := storeOf(r)
	if store == nil {
		return nil
	}
	valid := map[plugin.Attachment]bool{}
	for _, a := range r.Valid {
		valid[a] = true
		valid[plugin.Attachment{ContainerID: a.ContainerID}] = true
	}
	if _, err := store.Collect(ctx, func(owner plugin.Attachment) bool { return valid[owner] }); err != nil {
		return storeError(err, store, "collect the stale leases of network %s", r.Network)
	}
	return nil
}

func owner(r *plugin.Request) plugin.Attachment {
	return plugin.Attachment{ContainerID: r.ContainerID, IfName: r.IfName}
}

// storeOf returns the store that DEL and GC work on, nil if the configuration
// names a place where Add would have put nothing.
func storeOf(r *plugin.Request) *lease.Store {
	store, err := lease.NewStore(dataDir(r.Config.Object("ipam")), r.Network)
	if err != nil {
		return nil
	}
	return store
}
