package netfilter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Forward lets containers' packets be forwarded by a host that otherwise drops them, and keeps containers of different networks
// apart. It keeps them apart before it lets anything through.
//
// It has a third backend, firewalld, which the addresses go to if the configuration says so, or says nothing and firewalld runs. Policies
// are not up to it, as it has none like cnibox's policies.
type Forward struct {
	spec.ForwardNeeds
	Zone firewalld.Zone // "" if the configuration has another backend
}

// Feature is what it is but for the choice of firewalld.
func (f Forward) Feature() Feature {
	return Feature{
		does: "lets packets pass", elements: nft.ToForward(f.ForwardNeeds), zone: &f.Zone,
		kind: iptables.Forwarding, rules: func(key plugin.Key) iptables.Rules { return iptables.ForwardRules(key, f.ForwardNeeds) },
		marked: &iptables.Marked{Mark: nft.ForwardMark, Addrs: f.Addrs, AdminChain: f.AdminChain},
	}
}

// Add gives it to the request's attachment, in place of what that has.
func (f Forward) Add(ctx context.Context, w Wish, r *plugin.Request) error {
	return f.apply(ctx, w, r, Feature.Add, f.Zone.Add)
}

// Repair gives the attachment what is missing of it.
func (f Forward) Repair(ctx context.Context, w Wish, r *plugin.Request) error {
	return f.apply(ctx, w, r, Feature.Repair, f.Zone.Repair)
}

// apply has addresses put into a zone or into the packet filter, and the policy into the packet filter.
func (f Forward) apply(ctx context.Context, w Wish, r *plugin.Request, filter func(Feature, context.Context, Wish, *plugin.Request) error,
	zone func(context.Context, plugin.Key, []netip.Addr) error) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return filter(f.Feature(), ctx, w, r)
	}
	if f.Ingress != spec.Open {
		if err := filter(f.policy(), ctx, Wish{Key: w.Key}, r); err != nil {
			return err
		}
	}
	if err = zone(ctx, r.Key, f.Addrs); w.mayReplace(err) {
		return filter(f.Feature(), ctx, w, r)
	}
	return err
}

// Check compares what is there with what Add makes.
func (f Forward) Check(ctx context.Context, w Wish, r *plugin.Request) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return f.Feature().Check(ctx, w, r)
	}
	err = f.Zone.Check(ctx, r.Key, f.Addrs)
	if err != nil && w.Value == "" && f.Feature().Check(ctx, w, r) == nil { // firewalld has refused it
		return nil
	}
	if err != nil || f.Ingress == spec.Open {
		return err
	}
	return f.policy().Check(ctx, Wish{Key: w.Key}, r)
}

// Available reports whether the host has what Add needs.
func (f Forward) Available(ctx context.Context, w Wish) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return f.Feature().Available(w)
	}
	running, err := firewalld.Running(ctx)
	if err == nil && !running {
		err = types.NewError(types.ErrPluginNotAvailable, `backend is "firewalld", and firewalld is not running`, "start firewalld, or leave the key out")
	}
	if err != nil || f.Ingress == spec.Open {
		return err
	}
	return f.Feature().Available(Wish{Key: w.Key})
}

// Explain says what lets packets pass, and why: a sentence, and one more if something else keeps bridges apart.
func (f Forward) Explain(ctx context.Context, w Wish) []string {
	inZone, err := usesZone(ctx, w)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("lets packets pass with nothing: %v", err)}
	case !inZone:
		return []string{f.Feature().Explain(w)}
	}
	reason := "backend says so"
	if w.Value == "" {
		reason = "backend is left out, and firewalld is running"
	}
	list := []string{fmt.Sprintf("lets packets pass with zone %s of firewalld: %s", f.Zone, reason)}
	if f.Ingress != spec.Open {
		list = append(list, f.policy().Explain(Wish{Key: w.Key}))
	}
	return list
}

// usesZone reports whether addresses go to a zone of firewalld.
func usesZone(ctx context.Context, w Wish) (bool, error) {
	if w.Value != "" {
		return w.Value == Firewalld, nil
	}
	running, err := firewalld.Running(ctx)
	if w.mayReplace(err) {
		return false, nil
	}
	return running, err
}

// mayReplace reports whether another backend is to do what firewalld has refused.
func (w Wish) mayReplace(err error) bool {
	return w.Value == "" && errors.Is(err, firewalld.ErrRefused)
}

// policy is what is up to the other backends when addresses go to a zone.
func (f Forward) policy() Feature {
	f.Addrs = nil
	t := f.Feature()
	t.does = "keeps bridges apart"
	return t
}
