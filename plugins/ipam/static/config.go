package static

import (
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is the ipam object, with what the runtime asks for.
type config struct {
	addresses []address
	routes    []*types.Route
	dns       types.DNS
}

// address is one address of the container.
type address struct {
	prefix  netip.Prefix
	gateway netip.Addr // the zero Addr: none
}

func orNone(a netip.Addr) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}

func load(r *plugin.Request) (*config, error) {
	if !r.Config.Has("ipam") {
		return nil, plugin.ConfigError("add the object ipam with its type and addresses", "IPAM config missing 'ipam' key")
	}
	ipam := r.Config.Object("ipam")
	c := &config{routes: plugin.ParseRoutes(ipam, "routes"), dns: plugin.ParseDNS(ipam.Object("dns"))}
	if err := c.readAddresses(r, ipam); err != nil {
		return nil, err
	}
	if err := r.Config.Err(); err != nil {
		return nil, err
	}
	return c, c.validate(r)
}

// readAddresses reads the addresses from the first of these that gives any:
// runtimeConfig.ips, args.cni.ips, and the configuration together with
// CNI_ARGS. CNI_ARGS has to be valid all the same.
func (c *config) readAddresses(r *plugin.Request, ipam *conf.Object) error {
	asked, gateways, err := arguments(r)
	if err != nil {
		return err
	}
	for _, o := range []*conf.Object{r.Config.Object("runtimeConfig"), r.Config.Object("args").Object("cni")} {
		c.addresses, err = readIPs(o)
		if err != nil || len(c.addresses) > 0 {
			return err
		}
	}
	if c.addresses, err = readConfigured(ipam); err != nil {
		return err
	}
	c.addresses = append(c.addresses, asked...)
	for _, g := range gateways {
		for i := range c.addresses {
			if c.addresses[i].prefix.Contains(g) {
				c.addresses[i].gateway = g
			}
		}
	}
	return nil
}

// readConfigured reads ipam.addresses.
func readConfigured(ipam *conf.Object) (list []address, err error) {
	ipam.Objects("addresses", func(e *conf.Object) {
		var a address
		text := ""
		e.String("address", &text)
		plugin.ReadAddr(e, "gateway", &a.gateway)
		a.gateway = a.gateway.Unmap()
		var ok bool
		if a.prefix, ok = parseCIDR(text); !ok && err == nil {
			err = notation(e.Path("address"), "the 'address' field is expected to be in CIDR notation, got: '"+text+"'")
		}
		list = append(list, a)
	})
	if cerr := ipam.Err(); cerr != nil { // a wrong type comes first: it left the text empty
		return nil, cerr
	}
	return list, err
}

// readIPs reads the addresses that a runtime asks for by the key ips.
func readIPs(o *conf.Object) ([]address, error) {
	var texts []string
	o.Strings("ips", &texts)
	var list []address
	for _, text := range texts {
		p, ok := parseCIDR(text)
		if !ok {
			return nil, notation(o.Path("ips"), "an entry in the 'ips' field is NOT in CIDR notation, got: '"+text+"'")
		}
		list = append(list, address{prefix: p})
	}
	return list, nil
}

// arguments reads IP and GATEWAY of CNI_ARGS, lists separated by commas.
func arguments(r *plugin.Request) (asked []address, gateways []netip.Addr, err error) {
	args, err := plugin.Arguments(r.Args, "IP", "GATEWAY")
	if err != nil {
		return nil, nil, err
	}
	for _, text := range split(args["IP"]) {
		p, ok := parseCIDR(text)
		if !ok {
			return nil, nil, notation("CNI_ARGS IP", "the 'ip' field is expected to be in CIDR notation, got: '"+text+"'")
		}
		asked = append(asked, address{prefix: p})
	}
	for _, text := range split(args["GATEWAY"]) {
		g, err := netip.ParseAddr(text)
		if err != nil || g.Zone() != "" {
			return nil, nil, plugin.ConfigError("write an address such as 10.88.0.1", "CNI_ARGS GATEWAY: invalid gateway address: %s", text)
		}
		gateways = append(gateways, g.Unmap())
	}
	return asked, gateways, nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	items := strings.Split(list, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

func parseCIDR(text string) (p netip.Prefix, ok bool) {
	p, err := netip.ParsePrefix(text)
	return p, err == nil && !p.Addr().Is4In6()
}

func notation(where, msg string) error {
	return plugin.ConfigError("write it with a prefix length, such as 10.88.0.2/24", "%s: %s", where, msg)
}

// validate counts the addresses: the oldest results have room for one of each
// family.
func (c *config) validate(r *plugin.Request) error {
	v4 := 0
	for _, a := range c.addresses {
		if a.prefix.Addr().Is4() {
			v4++
		}
	}
	if (v4 > 1 || len(c.addresses)-v4 > 1) && !plugin.AtLeast(r.Version, "0.3.0") {
		return plugin.ConfigError("set cniVersion to 0.3.0 or newer, or keep one address of each family",
			"CNI version %s does not support more than 1 address per family", r.Version)
	}
	return nil
}
