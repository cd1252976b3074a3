package static

import (
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys(), Runtime: askedKeys(), Args: askedKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := load(r)
	return err
}

// ownKeys are those of the object "ipam".
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "addresses", Type: keys.Objects, Keys: addressKeys(),
			Doc: "The addresses to hand out."},
		{Name: "routes", Type: keys.Objects, Default: "none", Keys: result.RouteKeys(),
			Doc: "They go into the result as they are."},
		{Name: "dns", Type: keys.Object, Default: "none", Doc: "DNS settings for the result.", Keys: result.DNSKeys()},
	}
}

// addressKeys are those of an address.
func addressKeys() keys.Table {
	return keys.Table{
		{Name: "address", Type: keys.String, Form: keys.AddressWith, Required: true,
			Doc: "The address with its prefix length, such as `10.88.0.7/24`."},
		{Name: "gateway", Type: keys.String, Form: keys.Address, Default: "none",
			Doc: "The next hop of routes that name none."},
	}
}

// askedKeys are those of "runtimeConfig" and of "args.cni".
func askedKeys() keys.Table {
	return keys.Table{
		{Name: "ips", Type: keys.Strings, Form: keys.AddressWith,
			Doc: "Addresses with prefix length, in place of the configured ones."},
	}
}
