// Package held lists what attachments hold on this node, and collects what is held by those that are gone.
package held

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// List lists what is held in some stores, of one network or, for "", of all.
func List(ctx context.Context, network string, stores ...plugin.Store) (list []plugin.Held, err error) {
	for _, s := range stores {
		own, failed := s.Held(ctx, network)
		list, err = append(list, own...), errors.Join(err, failed)
	}
	return list, err
}

// GC releases what is held by attachments of the request's network that are not valid. Where a thing does not say its network, its
// container has to be on no other network either, by libcni's results; without those nothing is known of others, and it stays.
func GC(ctx context.Context, r *plugin.Request, stores ...plugin.Store) error {
	valid := newValid(r)
	var errs []error
	for _, s := range stores {
		list, err := s.Held(ctx, r.Network)
		if !errors.Is(err, netlink.ErrDumpInterrupted) { // what the list lacks is left to the next GC
			errs = append(errs, err)
		}
		list = slices.DeleteFunc(list, func(h plugin.Held) bool {
			return h.Key.Network != "" && h.Key.Network != r.Network || valid.has(h)
		})
		list, err = withoutOthers(r, list)
		errs = append(errs, err)
		if len(list) == 0 {
			continue
		}
		if err := r.Step(ctx, "release "+text(list)); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, s.Release(ctx, list))
	}
	return errors.Join(errs...)
}

func text(list []plugin.Held) string {
	const most = 10
	var texts []string
	for _, h := range list[:min(len(list), most)] {
		texts = append(texts, h.What)
	}
	if more := len(list) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// withoutOthers returns the list without what may be held for another network.
func withoutOthers(r *plugin.Request, list []plugin.Held) ([]plugin.Held, error) {
	isUnclear := func(h plugin.Held) bool { return h.Key.Network == "" }
	if !slices.ContainsFunc(list, isUnclear) {
		return list, nil
	}
	known, err := cache.Open(r.Results, plugin.Key{})
	if err != nil {
		known = nil // what was not listed may be in use
	}
	return slices.DeleteFunc(list, func(h plugin.Held) bool {
		ids := containers(h)
		return isUnclear(h) && (known == nil || ids == nil || known.MayHave(ids...))
	}), err
}

// valid is GC's list, to be looked up in.
type valid struct{ owners, containers map[string]bool }

func newValid(r *plugin.Request) *valid {
	v := &valid{map[string]bool{}, map[string]bool{}}
	for _, k := range r.Valid {
		v.owners[k.String()], v.containers[k.ContainerID] = true, true
	}
	return v
}

// has reports whether a valid attachment may hold something: a container's that does not say the rest is held as long as one of its is.
func (v *valid) has(h plugin.Held) bool {
	switch {
	case h.Owner != "":
		return v.owners[h.Owner]
	case h.Key.Network != "" && h.Key.IfName != "":
		return v.owners[h.Key.String()]
	}
	return slices.ContainsFunc(containers(h), func(id string) bool { return v.containers[id] })
}

// containers returns those that something can be held for.
func containers(h plugin.Held) []string {
	if h.Key.ContainerID != "" {
		return []string{h.Key.ContainerID}
	}
	return h.MayBe
}
