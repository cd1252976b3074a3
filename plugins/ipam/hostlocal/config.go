package hostlocal

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is the ipam object, with what the runtime asks for.
type config struct {
	dataDir    string
	resolvConf string
	routes     []*types.Route
	sets       []rangeSet
	requests   []request
}

// request is an address that the runtime asks for.
type request struct {
	address netip.Addr
	source  string // where it asks, for messages
}

// load reads the whole configuration, as ADD needs it.
func load(r *plugin.Request) (*config, error) {
	c, err := loadRanges(r)
	if err != nil {
		return nil, err
	}
	c.requests, err = requests(r)
	return c, err
}

// loadRanges reads the configuration without the requested addresses.
func loadRanges(r *plugin.Request) (*config, error) {
	if !r.Config.Has("ipam") {
		return nil, plugin.ConfigError("add the object ipam with its type and ranges", "IPAM config missing 'ipam' key")
	}
	ipam := r.Config.Object("ipam")
	c := &config{dataDir: dataDir(ipam), routes: plugin.ParseRoutes(ipam, "routes")}
	ipam.String("resolvConf", &c.resolvConf)
	if err := r.Config.Err(); err != nil {
		return nil, err
	}
	if err := c.readSets(r, ipam); err != nil {
		return nil, err
	}
	return c, nil
}

// dataDir returns the directory of all networks' leases.
func dataDir(ipam *conf.Object) string {
	dir := ""
	ipam.String("dataDir", &dir)
	if dir == "" {
		return lease.DefaultDir
	}
	return dir
}

func (c *config) store(network string) (*lease.Store, error) {
	store, err := lease.NewStore(c.dataDir, network)
	if err != nil {
		return nil, plugin.ConfigError("set ipam.dataDir to an absolute path, such as "+lease.DefaultDir, "host-local: %v", err)
	}
	return store, nil
}

// readSets reads the range sets in the order that numbers them: those of the
// runtime, the range written into ipam itself, those of ipam.ranges.
func (c *config) readSets(r *plugin.Request, ipam *conf.Object) error {
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
		set, err := readSet(list)
		if err != nil {
			e := *plugin.AsError(err)
			e.Msg = "invalid range set " + itoa(i) + ": " + e.Msg
			return &e
		}
		c.sets = append(c.sets, set)
	}
	return c.validate(r)
}

// validate looks at the sets together.
func (c *config) validate(r *plugin.Request) error {
	if len(c.sets) == 0 && !awaitsRanges(r) {
		return plugin.ConfigError(`add for example "ranges": [[{"subnet": "10.88.0.0/16"}]] to ipam`, "no IP ranges specified")
	}
	v4 := 0
	for i, s := range c.sets {
		if s.is4() {
			v4++
		}
		for j, t := range c.sets[:i] {
			if a, b, ok := s.overlap(t); ok {
				return plugin.ConfigError("give each range set addresses of its own",
					"range set %d overlaps with %d: %s and %s", j, i, b, a)
			}
		}
	}
	if (v4 > 1 || len(c.sets)-v4 > 1) && !plugin.AtLeast(r.Version, "0.3.0") {
		return plugin.ConfigError("set cniVersion to 0.3.0 or newer, or keep one range set of each family",
			"CNI version %s does not support more than 1 address per family", r.Version)
	}
	return nil
}

// awaitsRanges tells whether the ranges come with each ADD: a STATUS has no
// runtimeConfig.
func awaitsRanges(r *plugin.Request) bool {
	awaits := false
	r.Config.Object("capabilities").Bool("ipRanges", &awaits)
	return awaits && r.Command == plugin.Status
}

// requests returns the addresses asked for in CNI_ARGS, args.cni.ips and
// runtimeConfig.ips together, each once.
func requests(r *plugin.Request) ([]request, error) {
	var all []request
	add := func(text, source string) error {
		a, err := parseAddress(text)
		if err != nil {
			return plugin.ConfigError("ask for an address such as 10.88.0.7", "%s: %q is no IP address", source, text)
		}
		if !slices.ContainsFunc(all, func(q request) bool { return q.address == a }) {
			all = append(all, request{a, source})
		}
		return nil
	}
	args, err := plugin.Arguments(r.Args, "IP")
	if err != nil {
		return nil, err
	}
	if text, ok := args["IP"]; ok {
		if err := add(text, "CNI_ARGS IP"); err != nil {
			return nil, err
		}
	}
	for _, o := range []*conf.Object{r.Config.Object("args").Object("cni"), r.Config.Object("runtimeConfig")} {
		var texts []string
		o.Strings("ips", &texts)
		for _, text := range texts {
			if err := add(text, o.Path("ips")); err != nil {
				return nil, err
			}
		}
	}
	return all, r.Config.Err()
}

var errZone = errors.New("an address with a zone")

// parseAddress reads an address; a prefix length behind it is ignored.
func parseAddress(text string) (netip.Addr, error) {
	if strings.ContainsRune(text, '/') {
		p, err := netip.ParsePrefix(text)
		return p.Addr().Unmap(), err
	}
	a, err := netip.ParseAddr(text)
	if err == nil && a.Zone() != "" {
		err = errZone
	}
	return a.Unmap(), err
}
