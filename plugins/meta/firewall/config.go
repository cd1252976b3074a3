package firewall

import (
	"context"
	"fmt"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/backend"
)

// config is what the firewall plugin reads of a configuration; docs/firewall.md
// explains each key.
type config struct {
	backend    string
	adminChain string
	zone       firewalld.Zone
	ingress    netfilter.Ingress
}

const backendFirewalld = "firewalld"

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	o.String("iptablesAdminChainName", &c.adminChain)
	policy := ""
	o.String("ingressPolicy", &policy)
	switch policy {
	case "", "open":
		c.ingress = netfilter.Open
	case "same-bridge":
		c.ingress = netfilter.SameBridge
	case "isolated":
		c.ingress = netfilter.Isolated
	default:
		o.Fail("ingressPolicy", "open, same-bridge or isolated", fmt.Sprintf("%q", policy))
	}
	switch c.backend {
	case "", backendFirewalld, backend.NFTables, backend.IPTables:
	default:
		o.Fail("backend", "nftables, iptables or firewalld", fmt.Sprintf("%q", c.backend))
	}
	return c, o.Err()
}

// locate reads what DEL and GC need.
func locate(o *conf.Object) *config {
	c := &config{zone: firewalld.Zone{Name: "trusted"}}
	o.String("backend", &c.backend)
	zone := ""
	o.String("firewalldZone", &zone)
	if zone != "" {
		c.zone.Name = zone
	}
	return c
}

// usesZone tells whether addresses go to a zone of firewalld: because the
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
