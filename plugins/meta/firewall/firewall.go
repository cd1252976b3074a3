// Package firewall lets a container's packets pass a host that drops what it is
// to forward, and keeps containers of different bridges apart.
package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Plugin is the firewall plugin.
type Plugin struct{}

// Add lets all addresses of the previous result pass, and protects the bridge.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, f, err := wanted(r)
	if err != nil {
		return nil, err
	}
	inZone, inFilter, err := c.split(ctx, f)
	if err != nil {
		return nil, err
	}
	if err := r.Step(ctx, "let packets pass"); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	undo.Push("stop letting packets pass", func(ctx context.Context) error { return remove(ctx, r, nil) })
	if inFilter != nil {
		err = backend.Forward(*inFilter).Add(ctx, c.filter(), r.Key)
	}
	if inZone != nil && err == nil {
		err = c.zone.AddForward(ctx, r.Key, *inZone)
	}
	return r.PrevResult, err
}

// Del removes what ADD made, in whichever backend it is. It needs the
// attachment's key alone; the addresses of the previous result are for what the
// reference plugin made.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	r.Announce("stop letting packets pass")
	return remove(ctx, r, allPrefixes(r.PrevResult))
}

func remove(ctx context.Context, r *plugin.Request, hint []netip.Prefix) error {
	c := locate(r.Config)
	err := backend.Del(ctx, r.Key, hint, backend.Forward(spec.Forward{}))
	if c.backend != "" && c.backend != backendFirewalld {
		hint = nil // only what we have put there ourselves
	}
	return errors.Join(err, c.zone.DelForward(ctx, r.Key, hint))
}

// Check compares what lets packets pass, and the policy, with the configuration.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	c, f, err := wanted(r)
	if err != nil {
		return err
	}
	inZone, inFilter, err := c.split(ctx, f)
	if inZone != nil {
		err = c.zone.CheckForward(ctx, r.Key, *inZone)
	}
	if inFilter != nil && err == nil {
		err = backend.Forward(*inFilter).Check(ctx, c.filter(), r.Key)
	}
	return err
}

// Status reports whether the host has what the backend needs.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil {
		return err
	}
	inZone, inFilter, err := c.split(ctx, spec.Forward{Ingress: c.ingress})
	if inZone != nil {
		var running bool
		if running, err = firewalld.Running(ctx); !running && err == nil {
			err = types.NewError(types.ErrPluginNotAvailable, `backend is "firewalld", and firewalld is not running`, "start firewalld, or leave the key out")
		}
	}
	if inFilter != nil && err == nil {
		err = netns.CheckAdmin()
	}
	if inFilter != nil && err == nil {
		err = backend.Forward(*inFilter).Available(c.filter())
	}
	return err
}

// GC removes what attachments of the network have that are not valid.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	valid := r.ValidKeys()
	return errors.Join(
		backend.GC(ctx, r.Network, valid, backend.Forward(spec.Forward{})),
		locate(r.Config).zone.GCForward(ctx, r.Network, valid))
}

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	c, err := parse(o)
	if err != nil {
		return nil // which STATUS says
	}
	inZone, inFilter, err := c.split(context.Background(), spec.Forward{Ingress: c.ingress})
	switch {
	case err != nil:
		return []string{fmt.Sprintf("lets packets pass with nothing: %v", err)}
	case inZone == nil:
		return []string{backend.Forward(*inFilter).Explain("lets packets pass", c.filter())}
	}
	reason := "backend says so"
	if c.backend == "" {
		reason = "backend is left out, and firewalld is running"
	}
	list := []string{fmt.Sprintf("lets packets pass with zone %s of firewalld: %s", c.zone.Name, reason)}
	if inFilter != nil {
		list = append(list, backend.Forward(*inFilter).Explain("keeps bridges apart", c.filter()))
	}
	return list
}

// wanted returns what the configuration and the previous result ask for.
func wanted(r *plugin.Request) (*config, spec.Forward, error) {
	var f spec.Forward
	c, err := parse(r.Config)
	if err != nil {
		return nil, f, err
	}
	f = spec.Forward{AdminChain: c.adminChain, Ingress: c.ingress, Published: c.published}
	for _, p := range allPrefixes(r.PrevResult) {
		f.Addrs = append(f.Addrs, p.Addr())
	}
	if c.ingress != spec.Open {
		f.Bridge, f.HostEnd = bridgeAndPort(r.PrevResult)
		if f.Bridge == "" || len(f.Bridge) >= unix.IFNAMSIZ {
			return nil, f, plugin.ConfigError("chain the firewall plugin behind one that connects containers to a bridge, such as bridge",
				"ingressPolicy: %q is no bridge", f.Bridge)
		}
	}
	return c, f, nil
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
