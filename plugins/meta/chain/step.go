package chain

import (
	"context"
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/delegate"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// step is one plugin of the list.
type step struct {
	name         string
	plugin       *delegate.Delegate
	config       conf.Members // as it stands in the list
	capabilities []string
}

// add calls ADD with the result of the plugin before.
func (s *step) add(ctx context.Context, r *plugin.Request, prev []byte) (*plugin.Result, error) {
	own, err := s.request(r, plugin.Add, prev)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, s.name); err != nil {
		return nil, err
	}
	result, err := s.plugin.Add(ctx, own)
	if err == nil && result == nil {
		result = &plugin.Result{}
	}
	return result, err
}

// del calls DEL, also while another verb is undone.
func (s *step) del(ctx context.Context, r *plugin.Request, prev []byte) error {
	own, err := s.request(r, plugin.Del, prev)
	if err != nil {
		return err
	}
	r.Announce(s.name)
	return s.plugin.Del(ctx, own)
}

// call calls the request's verb.
func (s *step) call(ctx context.Context, r *plugin.Request, verb func(*delegate.Delegate, context.Context, *plugin.Request) error) error {
	own, err := s.request(r, r.Command, r.Config.Raw("prevResult"))
	if err != nil {
		return err
	}
	r.Announce(s.name)
	return verb(s.plugin, ctx, own)
}

// request is what a process of the plugin's own would have been asked.
func (s *step) request(r *plugin.Request, command plugin.Command, prev []byte) (*plugin.Request, error) {
	own := &plugin.Request{
		Command: command, Key: r.Key, Netns: r.Netns, Args: r.Args, Path: r.Path, Plugins: r.Plugins, Detach: r.Detach,
	}
	if r.Trace != nil {
		own.Trace = func(what string) { r.Trace(s.name + ": " + what) }
	}
	return own, own.Configure(s.stdin(r.Config, prev), s.plugin.Oldest())
}

// inherited are the keys of every call that a runtime adds to each plugin's
// configuration.
var inherited = [...]string{"name", "cniVersion", plugin.ValidKey, plugin.OldValidKey}

// stdin composes the configuration that libcni would send: the plugin's own
// with the network's name and version, the previous result, and of
// runtimeConfig what its capabilities ask for.
func (s *step) stdin(chain *conf.Object, prev []byte) []byte {
	members := s.config
	for _, key := range inherited {
		if value := chain.Raw(key); value != nil {
			members = members.Set(key, value)
		}
	}
	if prev != nil {
		members = members.Set("prevResult", prev)
	}
	var runtime conf.Members
	for _, m := range chain.Object("runtimeConfig").Members() {
		if slices.Contains(s.capabilities, m.Key) {
			runtime = append(runtime, m)
		}
	}
	if len(runtime) > 0 {
		members = members.Set("runtimeConfig", runtime.JSON())
	}
	return members.JSON()
}

// wrap says whose error it is.
func (s *step) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chain: %s: %w", s.name, err)
}
