package static

import (
	"net"
	"net/netip"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// load returns what the ipam object and the runtime ask for.
func load(r *plugin.Request) (*types100.Result, error) {
	if !r.Config.Has("ipam") {
		return nil, plugin.ConfigError("add the object ipam with its type and addresses", "IPAM config missing 'ipam' key")
	}
	ipam := r.Config.Object("ipam")
	result := &types100.Result{Routes: result.ParseRoutes(ipam, "routes"), DNS: result.ParseDNS(ipam.Object("dns"))}
	var err error
	if result.IPs, err = readAddresses(r, ipam); err == nil {
		err = r.Config.Err()
	}
	if err != nil {
		return nil, err
	}
	v4 := 0
	for _, ip := range result.IPs {
		if ip.Address.IP.To4() != nil {
			v4++
		}
	}
	if (v4 > 1 || len(result.IPs)-v4 > 1) && !plugin.AtLeast(r.Version, "0.3.0") {
		return nil, plugin.ConfigError("set cniVersion to 0.3.0 or newer, or keep one address of each family",
			"CNI version %s does not support more than 1 address per family", r.Version)
	}
	return result, nil
}

// readAddresses reads the addresses from the first of these that gives any: runtimeConfig.ips, args.cni.ips, and the configuration together
// with CNI_ARGS. CNI_ARGS has to be valid all the same.
func readAddresses(r *plugin.Request, ipam *conf.Object) ([]*types100.IPConfig, error) {
	args, err := plugin.Arguments(r.Args, "IP", "GATEWAY")
	if err != nil {
		return nil, err
	}
	asked, err := parse(split(args["IP"]), "CNI_ARGS IP: the 'ip' field is expected to be in CIDR notation")
	if err != nil {
		return nil, err
	}
	var gateways []net.IP
	for _, text := range split(args["GATEWAY"]) {
		g := net.ParseIP(text)
		if g == nil {
			return nil, plugin.ConfigError("write an address such as 10.88.0.1", "CNI_ARGS GATEWAY: invalid gateway address: %s", text)
		}
		gateways = append(gateways, g)
	}
	for _, o := range []*conf.Object{r.Config.Object("runtimeConfig"), r.Config.Object("args").Object("cni")} {
		var texts []string
		o.Strings("ips", &texts)
		ips, err := parse(texts, o.Path("ips")+": an entry in the 'ips' field is NOT in CIDR notation")
		if err != nil || len(ips) > 0 {
			return ips, err
		}
	}
	ips, err := readConfigured(ipam)
	if err != nil {
		return nil, err
	}
	ips = append(ips, asked...)
	for _, g := range gateways {
		for _, ip := range ips {
			if ip.Address.Contains(g) {
				ip.Gateway = g
			}
		}
	}
	return ips, nil
}

// readConfigured reads ipam.addresses.
func readConfigured(ipam *conf.Object) (ips []*types100.IPConfig, err error) {
	ipam.Objects("addresses", func(e *conf.Object) {
		text := ""
		e.String("address", &text)
		gateway := result.ParseIP(e, "gateway")
		if err != nil {
			return
		}
		var one []*types100.IPConfig
		if one, err = parse([]string{text}, e.Path("address")+": the 'address' field is expected to be in CIDR notation"); err == nil {
			one[0].Gateway = gateway
			ips = append(ips, one[0])
		}
	})
	if cerr := ipam.Err(); cerr != nil { // a wrong type comes first: it left the text empty
		return nil, cerr
	}
	return ips, err
}

// parse reads addresses with a prefix length.
func parse(texts []string, expectation string) (ips []*types100.IPConfig, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, plugin.ConfigError("write it with a prefix length, such as 10.88.0.2/24", "%s, got: '%s'", expectation, text)
		}
		ips = append(ips, &types100.IPConfig{Address: result.IPNet(p)})
	}
	return ips, nil
}

// split returns the items of a list in CNI_ARGS.
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
