package netfilter

import (
	"context"
	"errors"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Egress judges what an attachment sends. It is up to nftables alone.
type Egress struct{ spec.EgressNeeds }

// Features are what it is made of: the port that has to be closed comes first.
func (e Egress) Features() []Feature {
	return []Feature{
		{does: "guards ports of bridges", elements: nft.ToGuardPort(e.EgressNeeds), hasLists: true},
		{does: "judges what containers send", elements: nft.ToJudge(e.EgressNeeds), hasLists: true},
	}
}

// List returns what the list of what is routed is called.
func (e Egress) List() string { return nft.ToJudge(e.EgressNeeds).List() }

func (e Egress) each(call func(Feature, Wish) error) error {
	for _, t := range e.Features() {
		if err := call(t, Wish{}); err != nil {
			return err
		}
	}
	return nil
}

// Add gives it to the request's attachment, in place of what that has.
func (e Egress) Add(ctx context.Context, r *plugin.Request) error {
	return e.each(func(t Feature, w Wish) error { return t.Add(ctx, w, r) })
}

// Repair gives the attachment what is missing of it.
func (e Egress) Repair(ctx context.Context, r *plugin.Request) error {
	return e.each(func(t Feature, w Wish) error { return t.Repair(ctx, w, r) })
}

// Check compares what is there with what Add makes.
func (e Egress) Check(ctx context.Context, r *plugin.Request) error {
	return e.each(func(t Feature, w Wish) error { return t.Check(ctx, w, r) })
}

// Available reports whether the host has what Add needs.
func (e Egress) Available() error {
	var errs []error
	for _, t := range e.Features() {
		errs = append(errs, t.Available(Wish{}))
	}
	return errors.Join(errs...)
}
