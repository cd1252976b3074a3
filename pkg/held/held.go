// Package held lists what attachments hold on this node, and collects what is held by those that are gone.
package held

import (
	"context"
	"errors"
	"slices"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// Store is a place where attachments hold something.
type Store interface {
	// Held lists what is held, at least all of the network's; "" is all networks. With an error the list may lack something.
	Held(ctx context.Context, network string) ([]plugin.Held, error)

	// Release lets go of things from such a list, unless they have another owner by now. What is gone is no error. It tries all.
	Release(ctx context.Context, list []plugin.Held) error
}

// List lists what is held in some stores, of one network or, for "", of all.
func List(ctx context.Context, network string, stores ...Store) (list []plugin.Held, err error) {
	for _, s := range stores {
		own, failed := s.Held(ctx, network)
		list, err = append(list, own...), errors.Join(err, failed)
	}
	return list, err
}

// GC releases what is held by attachments of the request's network that are not valid. Where a thing does not say its network, its owner
// has to be on no other network either, by libcni's results; without those nothing is known of others, and it stays.
func GC(ctx context.Context, r *plugin.Request, stores ...Store) error {
	valid := newValid(r)
	var errs []error
	for _, s := range stores {
		list, err := s.Held(ctx, r.Network)
		errs = append(errs, err)
		list = slices.DeleteFunc(list, func(h plugin.Held) bool { return h.Key.Network != "" && (h.Key.Network != r.Network || valid.has(h)) })
		list, err = withoutOthers(r, valid, list)
		errs = append(errs, err)
		if len(list) > 0 {
			errs = append(errs, s.Release(ctx, list))
		}
	}
	return errors.Join(errs...)
}

// withoutOthers returns the list without what may be held for another network, or for a valid attachment.
func withoutOthers(r *plugin.Request, valid *valid, list []plugin.Held) ([]plugin.Held, error) {
	isUnclear := func(h plugin.Held) bool { return h.Key.Network == "" }
	if !slices.ContainsFunc(list, isUnclear) {
		return list, nil
	}
	known, err := results.Open(r.Results, plugin.Key{})
	return slices.DeleteFunc(list, func(h plugin.Held) bool {
		return isUnclear(h) && (known == nil || valid.has(h) || known.MayHave(h.Key.ContainerID))
	}), err
}

// valid is GC's list, to be looked up in.
type valid struct{ owners, containers map[string]bool }

func newValid(r *plugin.Request) *valid {
	v := &valid{map[string]bool{}, map[string]bool{}}
	for _, k := range r.ValidKeys() {
		v.owners[k.String()], v.containers[k.ContainerID] = true, true
	}
	return v
}

// has reports whether a valid attachment may hold something.
func (v *valid) has(h plugin.Held) bool {
	if h.Owner != "" {
		return v.owners[h.Owner]
	}
	return v.containers[h.Key.ContainerID]
}
