// Package dummy gives containers a dummy link: one with addresses that leads nowhere.
package dummy

import (
	"context"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is the dummy plugin.
type Plugin struct{ attach.InContainer }

// parse reads the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*attach.Config, error) {
	c := attach.Parse(r.Config)
	if err := r.Config.Err(); err != nil {
		return nil, err
	}
	if c.IPAM == "" {
		return nil, plugin.ConfigError(`add "ipam": a dummy link is for its addresses`, "dummy interface requires an IPAM configuration")
	}
	return c, nil
}

// Add makes the link and gives it IPAM's addresses.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r)
	if err != nil {
		return nil, err
	}
	a, err := attach.Begin(ctx, r, c)
	if err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	attrs := a.Attrs()
	attrs.HardwareAddr = a.ContainerMAC()
	if err := a.MakeLink(ctx, &netlink.Dummy{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	if err := a.Configure(ctx); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// Mend looks at the link and its addresses.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	a, err := attach.BeginMend(ctx, r, c, "dummy", m)
	if err != nil {
		return err
	}
	return a.Mend(ctx)
}

// Status reports whether an ADD could be served.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	return attach.Status(ctx, r, c)
}
