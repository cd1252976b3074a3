package firewall

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
)

// config is what the firewall plugin reads of a configuration; docs/firewall.md
// explains each key.
type config struct {
	backend    string
	adminChain string
	zone       firewalld.Zone
	ingress    spec.Ingress
	published  bool // allowPublishedPorts
}

const backendFirewalld = "firewalld"

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	o.String("iptablesAdminChainName", &c.adminChain)
	o.Bool("allowPublishedPorts", &c.published)
	policy := ""
	o.String("ingressPolicy", &policy)
	switch policy {
	case "", "open":
		c.ingress = spec.Open
	case "same-bridge":
		c.ingress = spec.SameBridge
	case "isolated":
		c.ingress = spec.Isolated
	default:
		o.Fail("ingressPolicy", "open, same-bridge or isolated", fmt.Sprintf("%q", policy))
	}
	switch c.backend {
	case "", backendFirewalld, backend.NFTables, backend.IPTables:
	default:
		o.Fail("backend", "nftables, iptables or firewalld", fmt.Sprintf("%q", c.backend))
	}
	if err := o.Err(); err != nil || c.adminChain == "" {
		return c, err
	}
	return c, iptables.ValidateChain("iptablesAdminChainName", c.adminChain)
}

// locate reads what DEL and GC need.
func locate(o *conf.Object) *config {
	c := &config{}
	o.String("backend", &c.backend)
	o.String("firewalldZone", &c.zone.Name)
	c.zone.Name = cmp.Or(c.zone.Name, "trusted")
	return c
}

// split returns what is up to a zone of firewalld and what to a backend, nil for nothing. firewalld has no policies like ours.
func (c *config) split(ctx context.Context, f spec.Forward) (inZone, inFilter *spec.Forward, err error) {
	uses, err := c.usesZone(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case !uses:
		return nil, &f, nil
	case f.Ingress == spec.Open:
		return &f, nil, nil
	}
	policy := f
	policy.Addrs = nil
	return &f, &policy, nil
}

// usesZone reports whether addresses go to a zone of firewalld: because the
// configuration says so, or says nothing and firewalld is there.
func (c *config) usesZone(ctx context.Context) (bool, error) {
	if c.backend != "" {
		return c.backend == backendFirewalld, nil
	}
	return firewalld.Running(ctx)
}

// filter is the wish for the backend of all that is not in a zone.
func (c *config) filter() backend.Wish {
	w := backend.Wish{Key: "backend"}
	if c.backend != backendFirewalld {
		w.Value = c.backend
	}
	return w
}
