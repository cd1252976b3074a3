package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/delegate"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// ownType is what the plugin is called.
const ownType = "chain"

// step is one plugin of the list.
type step struct {
	name         string // as the list has it
	plugin       *delegate.Delegate
	config       *conf.Object // as it stands in the list
	capabilities []string
}

// read reads the list of plugins and finds each of them. Beside an error it returns those that can be called: DEL and GC
// do what they can.
func read(r *plugin.Request) ([]*step, error) {
	listed, err := readSteps(r.Config)
	if err != nil {
		return nil, err
	}
	var steps []*step
	var errs []error
	for _, s := range listed {
		if err := s.find(r); err != nil {
			errs = append(errs, err)
			continue
		}
		steps = append(steps, s)
	}
	return steps, errors.Join(errs...)
}

// readSteps reads the list of plugins.
func readSteps(o *conf.Object) (steps []*step, err error) {
	o.Objects("plugins", func(e *conf.Object) {
		s := &step{config: e, capabilities: e.Object("capabilities").TrueKeys()}
		e.String("type", &s.name)
		steps = append(steps, s)
	})
	if err := o.Err(); err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	if len(steps) == 0 {
		return nil, plugin.ConfigError(`list the plugins to run, as in a conflist: "plugins": [{"type": "bridge", …}, …]`,
			"chain: %q has no plugins", "plugins")
	}
	return steps, nil
}

// find finds the plugin of a step.
func (s *step) find(r *plugin.Request) (err error) {
	where := s.config.Path("type")
	if s.name == "" {
		return plugin.ConfigError("each of the plugins names itself by \"type\"", "chain: key %q: want the name of a plugin, got none", where)
	}
	if s.plugin, err = delegate.Find(r, s.name); err != nil {
		return s.wrap(err)
	}
	if s.plugin.Name == ownType {
		return plugin.ConfigError("list its plugins in its place", "chain: key %q: a chain can't be part of a chain", where)
	}
	return s.wrap(plugin.CheckVersion(r.Version, r.Command, s.plugin.Oldest))
}

// validate is read for the verbs that refuse a configuration with a mistake, before anything is changed.
func validate(r *plugin.Request) ([]*step, error) {
	steps, err := read(r)
	if err != nil {
		return nil, err
	}
	declared := r.Config.Object("capabilities").TrueKeys()
	r.Config.Object("runtimeConfig")
	if err := r.Config.Err(); err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	return steps, checkCapabilities(steps, declared)
}

// checkCapabilities makes sure that the chain gets from the runtime what its plugins need: an entry of a conflist gets what it
// declares itself.
func checkCapabilities(steps []*step, declared []string) error {
	var missing, lacks []string
	for _, s := range steps {
		for _, c := range s.capabilities {
			if slices.Contains(declared, c) {
				continue
			}
			lacks = append(lacks, fmt.Sprintf("%s (of %s)", c, s.name))
			missing = append(missing, fmt.Sprintf("%q: true", c))
		}
	}
	if lacks == nil {
		return nil
	}
	slices.Sort(missing)
	return plugin.ConfigError(
		fmt.Sprintf(`add {%s} to the "capabilities" beside "type": "chain": the runtime hands over what is declared there`, strings.Join(slices.Compact(missing), ", ")),
		"chain: key %q lacks %s", "capabilities", strings.Join(lacks, ", "))
}

// call calls a verb with the result of the plugins so far, DEL also while an ADD is undone.
func (s *step) call(ctx context.Context, r *plugin.Request, command plugin.Command, prev *types100.Result) (*types100.Result, error) {
	own, err := s.request(r, command, prev)
	if err != nil {
		return nil, err
	}
	if command == plugin.Add {
		err = r.Step(ctx, s.name)
	} else {
		r.Announce(s.name)
	}
	if err != nil {
		return nil, err
	}
	return request.Serve(ctx, s.plugin, own)
}

// request is what libcni would ask of the plugin: its own configuration with the network's name and version, what a runtime adds to
// each plugin's for a verb, and of runtimeConfig what the plugin's capabilities ask for.
func (s *step) request(r *plugin.Request, command plugin.Command, prev *types100.Result) (*plugin.Request, error) {
	config := request.Compose(s.config, r.Config, r.Config.Object("runtimeConfig"), prev, r.Version)
	config.SetFrom(r.Config, request.ValidKey, request.OldValidKey)
	own := r.For(command)
	if r.Trace != nil {
		own.Trace = func(what string) { r.Trace(s.name + ": " + what) }
	}
	return own, request.Configure(own, config, s.plugin.Descriptor)
}

// wrap says whose error it is.
func (s *step) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chain: %s: %w", s.name, err)
}
