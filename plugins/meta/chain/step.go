package chain

import (
	"context"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// step is one plugin of the list.
type step struct {
	name         string
	plugin       *delegate.Delegate
	config       *conf.Object // as it stands in the list
	capabilities []string
}

// add calls ADD with the result of the plugin before.
func (s *step) add(ctx context.Context, r *plugin.Request, before *types100.Result) (*types100.Result, error) {
	own, err := s.request(r, plugin.Add, before)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, s.name); err != nil {
		return nil, err
	}
	result, err := s.plugin.Add(ctx, own)
	if err == nil && result == nil {
		result = &types100.Result{}
	}
	return result, err
}

// del calls DEL, also while an ADD is undone, with the newest result.
func (s *step) del(ctx context.Context, r *plugin.Request, made *types100.Result) error {
	own, err := s.request(r, plugin.Del, made)
	if err != nil {
		return err
	}
	r.Announce(s.name)
	return s.plugin.Del(ctx, own)
}

// call calls the request's verb.
func (s *step) call(ctx context.Context, r *plugin.Request, verb func(*delegate.Delegate, context.Context, *plugin.Request) error) error {
	own, err := s.request(r, r.Command, r.PrevResult)
	if err != nil {
		return err
	}
	r.Announce(s.name)
	return verb(s.plugin, ctx, own)
}

// request is what libcni would ask of the plugin: its own configuration with the network's name and version, what a runtime adds to
// each plugin's for a verb, and of runtimeConfig what the plugin's capabilities ask for.
func (s *step) request(r *plugin.Request, command plugin.Command, prev *types100.Result) (*plugin.Request, error) {
	config := s.config.Copy()
	config.Take(r.Config, "name", "cniVersion", plugin.ValidKey, plugin.OldValidKey)
	if asked := r.Config.Object("runtimeConfig").Only(s.capabilities...); len(asked.Keys()) > 0 {
		config.Set("runtimeConfig", asked)
	}
	if prev != nil {
		config.Set("prevResult", plugin.FormOf(prev, r.Version))
	}
	own := r.For(command)
	if r.Trace != nil {
		own.Trace = func(what string) { r.Trace(s.name + ": " + what) }
	}
	return own, own.Configure(config, s.plugin.Oldest)
}

// wrap says whose error it is.
func (s *step) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chain: %s: %w", s.name, err)
}
