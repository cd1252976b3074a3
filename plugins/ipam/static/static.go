// Package static hands out the addresses that the configuration or the runtime
// names and keeps no record of them: the IPAM plugin static.
package static

import (
	"context"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Plugin is static.
type Plugin struct{}

// Add returns the addresses, routes and DNS settings that are configured.
func (Plugin) Add(_ context.Context, r *plugin.Request) (*types100.Result, error) {
	c, err := load(r)
	if err != nil {
		return nil, err
	}
	result := &types100.Result{Routes: c.routes, DNS: c.dns}
	for _, a := range c.addresses {
		result.IPs = append(result.IPs, &types100.IPConfig{Address: plugin.IPNet(a.prefix), Gateway: a.gateway.AsSlice()})
	}
	return result, nil
}

// Del has nothing to give back.
func (Plugin) Del(context.Context, *plugin.Request) error { return nil }

// Check compares the configured addresses, and their gateways where given,
// with those of prevResult.
func (Plugin) Check(_ context.Context, r *plugin.Request) error {
	c, err := load(r)
	if err != nil {
		return err
	}
	if r.PrevResult == nil {
		return plugin.ConfigError("CHECK needs the result of ADD, which the runtime passes as prevResult", "static: required prevResult missing")
	}
	actual := plugin.AddressesOf(r.PrevResult, r.IfName)
	for _, a := range c.addresses {
		if err := a.find(actual, r.IfName); err != nil {
			return err
		}
	}
	return nil
}

// Status tells whether the configuration is valid.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	_, err := load(r)
	return err
}

// GC has nothing to remove.
func (Plugin) GC(context.Context, *plugin.Request) error { return nil }

// find looks for the address among those of the interface.
func (a address) find(actual []*types100.IPConfig, ifName string) error {
	for _, ip := range actual {
		if plugin.Prefix(ip.Address) != a.prefix {
			continue
		}
		if a.gateway.IsValid() && plugin.Addr(ip.Gateway) != a.gateway {
			return plugin.Errorf("the configuration changed since ADD: restart the container", "static: the gateway of %s on interface %s is configured as %s and was set up as %s", a.prefix, ifName, a.gateway, orNone(plugin.Addr(ip.Gateway)))
		}
		return nil
	}
	return plugin.Errorf("the configuration changed since ADD: restart the container", "static: the configured address %s is not on interface %s", a.prefix, ifName)
}
