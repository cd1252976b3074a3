package ranges

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
)

// Config is what the object ipam says of addresses. An attachment gets one of each pool.
type Config struct {
	Pools      []Pool
	routes     []*types.Route
	resolvConf string
}

// Read reads the configuration without the addresses that the runtime asks for.
func Read(r *plugin.Request) (*Config, error) {
	if !r.Config.Has("ipam") {
		return nil, plugin.ConfigError("add the object ipam with its type and ranges", "IPAM config missing 'ipam' key")
	}
	ipam := r.Config.Object("ipam")
	c := &Config{routes: result.ParseRoutes(ipam, "routes")}
	ipam.String("resolvConf", &c.resolvConf)
	if err := r.Config.Err(); err != nil {
		return nil, err
	}
	return c, c.readPools(r, ipam)
}

// readPools reads the range sets in the order that numbers them: those of the
// runtime, the range written into ipam itself, those of ipam.ranges.
func (c *Config) readPools(r *plugin.Request, ipam *conf.Object) error {
	var sets [][]*conf.Object
	add := func(list []*conf.Object) { sets = append(sets, list) }
	r.Config.Object("runtimeConfig").ObjectLists("ipRanges", add)
	if ipam.Has("subnet") {
		add([]*conf.Object{ipam})
	}
	ipam.ObjectLists("ranges", add)
	if err := r.Config.Err(); err != nil {
		return err
	}
	for i, list := range sets {
		p, err := readPool(i, list)
		if err != nil {
			e := plugin.AsError(err)
			return types.NewError(e.Code, "invalid range set "+strconv.Itoa(i)+": "+e.Msg, e.Details)
		}
		c.Pools = append(c.Pools, p)
	}
	return c.validate(r)
}

// validate looks at the pools together.
func (c *Config) validate(r *plugin.Request) error {
	// A STATUS has no runtimeConfig: the ranges may come with each ADD.
	fromRuntime := false
	r.Config.Object("capabilities").Bool("ipRanges", &fromRuntime)
	if len(c.Pools) == 0 && !(fromRuntime && r.Command == plugin.Status) {
		return plugin.ConfigError(`add for example "ranges": [[{"subnet": "10.88.0.0/16"}]] to ipam`, "no IP ranges specified")
	}
	v4 := 0
	for i, p := range c.Pools {
		if isIPv4(p) {
			v4++
		}
		for j, q := range c.Pools[:i] {
			if a, b, ok := overlap(p, q); ok {
				return plugin.ConfigError("give each range set addresses of its own", "range set %d overlaps with %d: %s and %s", j, i, b, a)
			}
		}
	}
	if (v4 > 1 || len(c.Pools)-v4 > 1) && !plugin.AtLeast(r.Version, "0.3.0") {
		return plugin.ConfigError("set cniVersion to 0.3.0 or newer, or keep one range set of each family",
			"CNI version %s does not support more than 1 address per family", r.Version)
	}
	return nil
}

// ReadRequests reads the addresses that the runtime asks for, in CNI_ARGS, args.cni.ips and runtimeConfig.ips together.
func (c *Config) ReadRequests(r *plugin.Request) error {
	args, err := plugin.Arguments(r.Args, "IP")
	if err != nil {
		return err
	}
	if text, ok := args["IP"]; ok {
		if err := c.request(text, "CNI_ARGS IP"); err != nil {
			return err
		}
	}
	for _, o := range []*conf.Object{r.Config.Object("args").Object("cni"), r.Config.Object("runtimeConfig")} {
		var texts []string
		o.Strings("ips", &texts)
		for _, text := range texts {
			if err := c.request(text, o.Path("ips")); err != nil {
				return err
			}
		}
	}
	return r.Config.Err()
}

// request asks the pool that holds an address for it. A pool serves one request; the prefix length that may follow the address is ignored.
func (c *Config) request(text, source string) error {
	a, err := netip.ParseAddr(text)
	if p, perr := netip.ParsePrefix(text); perr == nil {
		a, err = p.Addr(), nil
	}
	if err != nil || a.Zone() != "" {
		return plugin.ConfigError("ask for an address such as 10.88.0.7", "%s: %q is no IP address", source, text)
	}
	a = a.Unmap()
	for i := range c.Pools {
		p := &c.Pools[i]
		at := p.Find(a)
		switch {
		case at < 0:
			continue
		case a == p.Ranges[at].Gateway:
			return plugin.ConfigError("ask for another address", "failed to allocate for range %d: requested ip %s (%s) is subnet's gateway", i, a, source)
		case p.Want.IsValid() && p.Want != a:
			return plugin.ConfigError("ask for at most one address of each range set",
				"failed to allocate all requested IPs: %s (%s): range set %d is to serve %s already", a, source, i, p.Want)
		}
		p.Want = a
		return nil
	}
	var ranges []string
	for _, p := range c.Pools {
		ranges = append(ranges, p.String())
	}
	all := strings.Join(ranges, ",")
	return plugin.ConfigError("ask for an address of a configured range: "+all,
		"failed to allocate all requested IPs: %s (%s) is not in range set %s", a, source, all)
}

// DNS reads the file resolvConf in the form of resolv.conf(5), if it is set.
func (c *Config) DNS() (types.DNS, error) {
	if c.resolvConf == "" {
		return types.DNS{}, nil
	}
	text, err := state.Read(c.resolvConf)
	if err != nil {
		return types.DNS{}, plugin.ConfigError("correct the path, or remove the key", "key %q: %w", "ipam.resolvConf", err)
	}
	return result.ParseResolvConf(string(text)), nil
}

// Result is what ADD answers: an address of each pool, in their order.
func (c *Config) Result(addresses []netip.Addr, dns types.DNS) *types100.Result {
	r := &types100.Result{Routes: c.routes, DNS: dns}
	for i, a := range addresses {
		from := c.Pools[i].Ranges[c.Pools[i].Find(a)]
		r.IPs = append(r.IPs, &types100.IPConfig{
			Address: result.IPNet(netip.PrefixFrom(a, from.Subnet.Bits())), Gateway: from.Gateway.AsSlice(),
		})
	}
	return r
}
