package bridge

import (
	"context"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Explain implements plugin.Explainer.
func (Plugin) Explain(o *conf.Object) []string {
	c := locate(&plugin.Request{Config: o})
	return c.masquerade.Explain(&c.Config)
}

// Status reports whether an ADD could be served: the configuration is valid, the bridge's name is free or a bridge's, the packet
// filter has what is needed, and the IPAM plugin is ready.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r)
	if err != nil {
		return err
	}
	l, err := r.Links().LinkByName(c.name)
	switch {
	case err == nil:
		if err := c.checkBridge(l); err != nil {
			return plugin.Unavailable(err)
		}
	case !link.IsNotFound(err):
		return err
	}
	if err := c.masquerade.Available(); err != nil {
		return err
	}
	if c.spoofCheck {
		if err := netfilter.SpoofCheck("", [6]byte{}).Available(netfilter.Wish{}); err != nil {
			return err
		}
	}
	return attach.Status(ctx, r, &c.Config)
}
