// Package chain runs a list of plugins, as a runtime would run them one after
// the other, in one process.
package chain

import (
	"context"
	"errors"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the chain plugin.
type Plugin struct{}

// Add calls the plugins in order, each with the result of the one before. When
// one fails, those that ran are called with DEL, the last one first.
//
// The one that failed is among them only if it is another program. One of ours
// has undone what it did, and may have failed because a repeated ADD found the
// attachment there, which a DEL would take away.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (result *types100.Result, err error) {
	steps, err := validate(r)
	if err != nil {
		return nil, err
	}
	var made *types100.Result // by the plugins so far
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	for _, s := range steps {
		takeBack := func(ctx context.Context) error { return s.del(ctx, r, made) }
		if s.plugin.External() {
			undo.Push("DEL of "+s.name, takeBack)
		}
		if result, err = s.add(ctx, r, made); err != nil {
			return nil, s.wrap(err)
		}
		if !s.plugin.External() {
			undo.Push("DEL of "+s.name, takeBack)
		}
		made = result
	}
	return result, nil
}

// Del calls the plugins in reverse order, all of them even if one fails.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	steps, err := read(r)
	if slices.ContainsFunc(steps, func(s *step) bool { return s.makesLink(r) }) {
		r.Deleter() // first, so that it is ready when the plugin needs it, which comes last
	}
	errs := []error{err}
	for _, s := range slices.Backward(steps) {
		errs = append(errs, s.wrap(s.del(ctx, r, nil)))
	}
	return errors.Join(errs...)
}

// Check calls the plugins in order, up to one that fails.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	steps, err := validate(r)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := s.call(ctx, r, (*delegate.Delegate).Check); err != nil {
			return s.wrap(err)
		}
	}
	return nil
}

// Status asks all plugins.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	steps, err := validate(r)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range steps {
		errs = append(errs, s.wrap(s.call(ctx, r, (*delegate.Delegate).Status)))
	}
	return errors.Join(errs...)
}

// GC calls the plugins in order, all of them even if one fails.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	steps, err := read(r)
	errs := []error{err}
	for _, s := range steps {
		errs = append(errs, s.wrap(s.call(ctx, r, (*delegate.Delegate).GC)))
	}
	return errors.Join(errs...)
}
