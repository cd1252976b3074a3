package attach

import (
	"context"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Link is how host-device makes its link.
type Link struct {
	Make   func(ctx context.Context, a *Attachment) error
	Remove func() error
}

// Add is what host-device calls for all of an ADD.
func Add(ctx context.Context, r *plugin.Request, c *Config, l Link) (_ *types100.Result, err error) {
	a, err := Begin(ctx, r, c)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.Step(ctx, "link"); err != nil {
		return nil, err
	}
	if err := l.Make(ctx, a); err != nil {
		return nil, err
	}
	if err := a.Made(func(context.Context) error { return l.Remove() }); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// Lease is Add for an interface that the kernel does not have, since a program in the container drives the device: it asks IPAM for
// addresses, and reports them.
func Lease(ctx context.Context, r *plugin.Request, c *Config, own *types100.Interface) (_ *types100.Result, err error) {
	a, err := Begin(ctx, r, c)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	a.Interface = own
	if err := a.AskIPAM(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}
