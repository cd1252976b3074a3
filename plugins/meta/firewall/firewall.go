// Package firewall lets a container's packets pass a host that drops what it is
// to forward, and keeps containers of different bridges apart.
package firewall

import (
	"context"
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Plugin is the firewall plugin.
type Plugin struct{}

// Add lets all addresses of the previous result pass, and protects the bridge.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := wanted(r)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "let packets pass"); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("stop letting packets pass", func(ctx context.Context) error { return netfilter.Del(ctx, r, nil, c.forward.Feature()) })
	return r.PrevResult, c.forward.Add(ctx, c.backend, r)
}

// Del removes what ADD made, in whichever backend it is. It needs the attachment's key alone; the addresses of the previous result are for
// what the reference plugin made.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	r.Announce("stop letting packets pass")
	return netfilter.Del(ctx, r, allPrefixes(r.PrevResult), locate(r.Config).forward.Feature())
}

// Mend looks at what lets packets pass, and the policy.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	c, err := wanted(r)
	if err != nil {
		return err
	}
	m.Mend(c.forward.Check(ctx, c.backend, r), "let packets pass", func() error { return c.forward.Repair(ctx, c.backend, r) })
	return nil
}

// Status reports whether the host has what the backend needs.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil {
		return err
	}
	return c.forward.Available(ctx, c.backend)
}

// Stores returns where something lets packets pass.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return netfilter.Stores(r, netfilter.Forward{}.Feature())
}

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	c, err := parse(o)
	if err != nil {
		return nil // which STATUS says
	}
	return c.forward.Explain(context.Background(), c.backend)
}

// wanted returns what the configuration and the previous result ask for.
func wanted(r *plugin.Request) (*config, error) {
	c, err := parse(r.Config)
	if err != nil {
		return nil, err
	}
	f := &c.forward
	for _, p := range allPrefixes(r.PrevResult) {
		f.Addrs = append(f.Addrs, p.Addr())
	}
	if f.Ingress == spec.Open {
		return c, nil
	}
	f.Bridge, f.HostEnd = bridgeAndPort(r.PrevResult)
	if err := link.ValidateName(f.Bridge); err != nil {
		return nil, plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
			"ingressPolicy: %q is no bridge: %w", f.Bridge, err)
	}
	return c, nil
}

// bridgeAndPort returns the names that a plugin which connects containers to a
// bridge reports: the bridge's first, then that of the veth's end in it.
func bridgeAndPort(r *types100.Result) (bridge, port string) {
	for i, f := range r.Interfaces {
		switch {
		case f.Sandbox != "":
		case i == 0:
			bridge = f.Name
		case bridge != "":
			return bridge, f.Name
		}
	}
	return bridge, ""
}

// allPrefixes returns all addresses, of whichever interface: each may send
// packets. There may be no result.
func allPrefixes(r *types100.Result) []netip.Prefix {
	if r == nil {
		return nil
	}
	return result.Prefixes(r.IPs)
}
