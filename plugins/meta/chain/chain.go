// Package chain runs a list of plugins, as a runtime would run them one after the other, in one process.
package chain

import (
	"context"
	"errors"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/detach"
)

// Plugin is the chain plugin.
type Plugin struct{}

// Add calls the plugins in order, each with the result of the one before. When one fails, those that ran are called with DEL, the
// last one first, all with the newest result. The one that failed has undone what it did.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	steps, err := validate(r)
	if err != nil {
		return nil, err
	}
	if err := refuseSecond(r, steps); err != nil {
		return nil, err
	}
	made := r.PrevResult // by the plugins so far
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	for _, s := range steps {
		result, err := s.call(ctx, r, plugin.Add, made)
		if err != nil {
			return nil, s.wrap(err)
		}
		made = result
		undo.Push("DEL of "+s.name, func(ctx context.Context) error {
			_, err := s.call(ctx, r, plugin.Del, made)
			return err
		})
	}
	return made, nil
}

// refuseSecond refuses an ADD of an attachment that is there. The plugin that makes its interface would refuse it, but then DEL of those
// before it, and of another program itself, would take away what the attachment has.
func refuseSecond(r *plugin.Request, steps []*step) error {
	i := slices.IndexFunc(steps, func(s *step) bool { return s.plugin.Kind == plugin.Main && s.plugin.Name != "loopback" })
	if i < 0 || i == 0 && !steps[0].plugin.External {
		return nil
	}
	return steps[i].wrap(attach.RefuseSecond(r))
}

// Del calls the plugins in reverse order, all of them even if one fails.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	steps, err := read(r)
	if slices.ContainsFunc(steps, func(s *step) bool { return s.plugin.Kind == plugin.Main && !s.plugin.External }) {
		detach.Start(r) // first, so that it is ready when the plugin needs it, which comes last
	}
	slices.Reverse(steps)
	return errors.Join(err, all(ctx, r, steps))
}

// Mend calls the plugins in order: a CHECK up to one that finds something, a repair all of them, unless there is nothing to repair.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	steps, err := validate(r)
	if err != nil {
		return err
	}
	if r.Filter != nil && m.IsCheck() { // of many attachments: what all may have lost, the packet filter, comes with the last plugins
		slices.Reverse(steps)
	}
	for _, s := range steps {
		if m.IsOver() {
			break
		}
		own, err := s.request(r, r.Command, r.PrevResult)
		if err != nil {
			m.Fail(s.wrap(err))
			continue
		}
		if !m.Repairs() { // which says what it does
			r.Announce(s.name)
		}
		asked := m.Ask(ctx, s.plugin, own)
		for _, found := range asked.Found() {
			m.Add(s.wrap(found), nil)
		}
		left := asked.Left()
		m.Add(nil, s.wrap(left))
		if errors.Is(left, plugin.ErrLost) || errors.Is(left, plugin.ErrInTheWay) {
			break
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
	return all(ctx, r, steps)
}

// GC calls the plugins in order, all of them even if one fails.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	steps, err := read(r)
	return errors.Join(err, all(ctx, r, steps))
}

func all(ctx context.Context, r *plugin.Request, steps []*step) error {
	var errs []error
	for _, s := range steps {
		_, err := s.call(ctx, r, r.Command, r.PrevResult)
		errs = append(errs, s.wrap(err))
	}
	return errors.Join(errs...)
}
