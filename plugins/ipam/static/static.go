// Package static hands out the addresses that the configuration or the runtime names and keeps no record of them: the IPAM plugin static.
package static

import (
	"context"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Plugin is static.
type Plugin struct{}

// Add returns the addresses, routes and DNS settings that are configured.
func (Plugin) Add(_ context.Context, r *plugin.Request) (*types100.Result, error) {
	return load(r)
}

// Del has nothing to give back.
func (Plugin) Del(context.Context, *plugin.Request) error { return nil }

// Mend compares the configured addresses, and their gateways where given, with those of prevResult. Only a restart helps.
func (Plugin) Mend(_ context.Context, r *plugin.Request, _ *plugin.Mender) error {
	wanted, err := load(r)
	if err != nil {
		return err
	}
	const changed = "the configuration changed since ADD: restart the container"
	actual := result.AddressesOf(r.PrevResult, r.IfName)
	for _, w := range wanted.IPs {
		i := slices.IndexFunc(actual, func(ip *types100.IPConfig) bool { return result.Prefix(ip.Address) == result.Prefix(w.Address) })
		if i < 0 {
			return plugin.Errorf(changed, "static: the configured address %s is not on interface %s", &w.Address, r.IfName)
		}
		if w.Gateway != nil && !w.Gateway.Equal(actual[i].Gateway) {
			was := "none"
			if actual[i].Gateway != nil {
				was = actual[i].Gateway.String()
			}
			return plugin.Errorf(changed, "static: the gateway of %s on interface %s is configured as %s and was set up as %s", &w.Address, r.IfName, w.Gateway, was)
		}
	}
	return nil
}

// Status reports whether the configuration is valid.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	_, err := load(r)
	return err
}
