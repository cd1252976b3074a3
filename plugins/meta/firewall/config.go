package firewall

import (
	"cmp"
	"fmt"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
)

// config is what the firewall plugin reads of a configuration; docs/plugins/firewall.md
// explains each key.
type config struct {
	backend netfilter.Wish
	forward netfilter.Forward // but for what is to pass
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := locate(o)
	o.String("iptablesAdminChainName", &c.forward.AdminChain)
	o.Bool("allowPublishedPorts", &c.forward.Published)
	policy := ""
	o.String("ingressPolicy", &policy)
	switch policy {
	case "", "open":
		c.forward.Ingress = spec.Open
	case "same-bridge":
		c.forward.Ingress = spec.SameBridge
	case "isolated":
		c.forward.Ingress = spec.Isolated
	default:
		o.Fail("ingressPolicy", "open, same-bridge or isolated", fmt.Sprintf("%q", policy))
	}
	switch c.backend.Value {
	case "", netfilter.Firewalld, netfilter.NFTables, netfilter.IPTables:
	default:
		o.Fail("backend", "nftables, iptables or firewalld", fmt.Sprintf("%q", c.backend.Value))
	}
	if err := o.Err(); err != nil || c.forward.AdminChain == "" {
		return c, err
	}
	return c, iptables.ValidateChain("iptablesAdminChainName", c.forward.AdminChain)
}

// locate reads what DEL and GC need.
func locate(o *conf.Object) *config {
	c := &config{backend: netfilter.Wish{Key: "backend"}}
	o.String(c.backend.Key, &c.backend.Value)
	zone := ""
	o.String("firewalldZone", &zone)
	if c.backend.Value == "" || c.backend.Value == netfilter.Firewalld {
		c.forward.Zone = firewalld.Zone(cmp.Or(zone, "trusted"))
	}
	return c
}
