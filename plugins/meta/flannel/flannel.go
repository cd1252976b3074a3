// Package flannel completes the configuration of another plugin, bridge unless told otherwise, with what flannel's daemon has leased for
// this node, and calls that plugin. In a list it stands where that one would.
package flannel

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/delegate"
	"github.com/cnibox/cnibox/pkg/process/request"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
)

// Plugin is the flannel plugin.
type Plugin struct{}

// Add calls the delegate, whose configuration it keeps for DEL.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	d, own, err := wanted(r)
	if err != nil {
		return nil, err
	}
	if err := attach.RefuseSecond(r); err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "keep the configuration for DEL"); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	path, err := save(r, own.Config)
	if err != nil {
		return nil, plugin.CodeErrorf(types.ErrIOFailure, writableDir, "keep the configuration for DEL: %w", err)
	}
	undo.Push("remove "+path, func(context.Context) error { return state.Remove(path) })
	return d.Add(ctx, own)
}

// wanted returns the delegate, and what the configuration and the node's lease ask of it.
func wanted(r *plugin.Request) (*delegate.Delegate, *plugin.Request, error) {
	if err := validate(r); err != nil {
		return nil, nil, err
	}
	leased, err := readSubnet(subnetFile(r.Config))
	if err != nil {
		return nil, nil, notReady(r.Command, err)
	}
	return ofDelegate(r, render(r, leased))
}

// notReady is the error of a node that the daemon has not leased a subnet for.
func notReady(command plugin.Command, err error) error {
	code := uint(types.ErrTryAgainLater)
	if command == plugin.Status {
		code = types.ErrPluginNotAvailable
	}
	return plugin.CodeErrorf(code, "flannel's daemon writes it when it has a subnet for this node: see the daemon's log (in Kubernetes, of the flannel pod on this node)",
		"failed to load flannel 'subnet.env' file: %w", err)
}

// ofDelegate returns the delegate that a complete configuration names, and r's verb for it.
func ofDelegate(r *plugin.Request, config *conf.Object) (*delegate.Delegate, *plugin.Request, error) {
	name := ""
	config.String("type", &name)
	d, err := delegate.Find(r, name)
	if err != nil {
		return nil, nil, err
	}
	config = config.Copy()
	config.Set("cniVersion", r.Version)
	config.SetFrom(r.Config, request.ValidKey, request.OldValidKey)
	if r.Command != plugin.Add && r.PrevResult != nil {
		config.Set("prevResult", result.FormOf(r.PrevResult, r.Version))
	}
	own := r.For(r.Command)
	return d, own, request.Configure(own, config, d.Descriptor)
}

// Del calls the delegate with what ADD has called it with or, if that is lost, with what there is of it. The kept file is removed only
// when that has succeeded, so that a DEL that fails can be repeated.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	saved, lost := find(r)
	if saved.config == nil {
		saved.config = renderBestEffort(r)
	}
	d, own, err := ofDelegate(r, saved.config)
	if err == nil {
		err = d.Del(ctx, own)
	}
	if err == nil {
		err = state.Remove(saved.path)
	}
	return errors.Join(err, lost)
}

// Mend has the delegate mend what ADD asked of it.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	if err := validate(r); err != nil {
		return err
	}
	saved, err := find(r)
	if err != nil {
		return err
	}
	d, own, err := saved.ofDelegate(r)
	if err != nil {
		return err
	}
	return d.Mend(ctx, own, m)
}

// Status reports whether the node has a lease, and the delegate is ready for an ADD.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	d, own, err := wanted(r)
	if err != nil {
		return err
	}
	if err := state.Writable(dataDir(r.Config)); err != nil {
		return plugin.CodeErrorf(types.ErrPluginNotAvailable, writableDir, "the configuration can't be kept for DEL: %w", err)
	}
	return d.Status(ctx, own)
}

// GC has the delegate remove what attachments have that are not valid, and then removes what was kept for their DEL.
func (p Plugin) GC(ctx context.Context, r *plugin.Request) error {
	d, own, err := ofDelegate(r, renderBestEffort(r))
	if err == nil {
		err = d.GC(ctx, own)
	}
	if err == nil {
		err = held.GC(ctx, r, p.Stores(r)...)
	}
	return err
}

// Stores returns what is kept for DEL.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{files(dataDir(r.Config))}
}
