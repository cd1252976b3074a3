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

// add calls ADD with the result of the plugin before, nil if this is the first.
func (s *step) add(ctx context.Context, r *plugin.Request, made *types100.Result) (*types100.Result, error) {
	own, err := s.request(r, plugin.Add, made)
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

// del calls DEL, also while an ADD that has made something is undone.
func (s *step) del(ctx context.Context, r *plugin.Request, made *types100.Result) error {
	own, err := s.request(r, plugin.Del, made)
	if err != nil {
		return err
	}
	r.Announce(s.name)
	return s.plugin.Del(ctx, own)
}

// makesLink reports whether the plugin is one that makes a link, in this process.
func (s *step) makesLink(r *plugin.Request) bool {
	row := r.Plugins.Find(s.name)
	return row != nil && row.Kind == plugin.Main && !s.plugin.External()
}

// call calls the request's verb.
func (s *step) call(ctx context.Context, r *plugin.Request, verb func(*delegate.Delegate, context.Context, *plugin.Request) error) error {
	own, err := s.request(r, r.Command, nil)
	if err != nil {
		return err
	}
	r.Announce(s.name)
	return verb(s.plugin, ctx, own)
}

// request is what a process of the plugin's own would have been asked, with the
// result that the chain has made so far; nil is the one that the chain was given.
func (s *step) request(r *plugin.Request, command plugin.Command, made *types100.Result) (*plugin.Request, error) {
	config := s.compose(r.Config)
	own := r.For(command, config)
	if made != nil {
		var err error
		if own.PrevResult, err = plugin.In(made, r.Version); err != nil {
			return nil, err
		}
		config.Drop("prevResult") // which is the one before the chain
	}
	if r.Trace != nil {
		own.Trace = func(what string) { r.Trace(s.name + ": " + what) }
	}
	return own, own.ConfigureBy(config, s.plugin.Oldest())
}

// compose makes the configuration that libcni would send: the plugin's own with
// the network's name and version, what a runtime adds to each plugin's for a
// verb, and of runtimeConfig what the plugin's capabilities ask for.
func (s *step) compose(chain *conf.Object) *conf.Object {
	config := s.config.Copy()
	config.Take(chain, "name", "cniVersion", "prevResult", plugin.ValidKey, plugin.OldValidKey)
	config.TakeSome(chain, "runtimeConfig", s.capabilities)
	return config
}

// wrap says whose error it is.
func (s *step) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chain: %s: %w", s.name, err)
}
