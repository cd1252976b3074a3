package flannel

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
)

const defaultDataDir = "/var/lib/cni/flannel"

// The plugins that a configuration need not name.
const usualDelegate, usualIPAM = "bridge", "host-local"

func subnetFile(o *conf.Object) string { return pathAt(o, "subnetFile", "/run/flannel/subnet.env") }

func dataDir(o *conf.Object) string { return pathAt(o, "dataDir", defaultDataDir) }

// pathAt returns the absolute path at a key, the usual one if there is none.
func pathAt(o *conf.Object, key, usual string) string {
	path := ""
	o.String(key, &path)
	if path != "" && !filepath.IsAbs(path) {
		o.Fail(key, "an absolute path, such as "+usual, strconv.Quote(path))
		return usual
	}
	return filepath.Clean(cmp.Or(path, usual))
}

// typeOf returns the plugin that an object names, the usual one if it names none.
func typeOf(o *conf.Object, usual string) string {
	name := ""
	o.String("type", &name)
	return cmp.Or(name, usual)
}

// validate refuses a configuration with a mistake, which the other verbs pass over.
func validate(r *plugin.Request) error {
	o := r.Config
	subnetFile(o)
	dataDir(o)
	o.Object("runtimeConfig")
	result.ParseRoutes(o.Object("ipam"), "routes")
	typeOf(o.Object("ipam"), "")
	given := o.Object("delegate")
	name := typeOf(given, "")
	if row := r.Plugins.Find(name); row != nil && (row.Kind != plugin.Main || row.Plugin == Plugin{}) {
		given.Fail("type", "a plugin that makes an interface itself, such as bridge", name)
	}
	for _, key := range []string{"name", "ipam"} {
		if given.Has(key) {
			given.Fail(key, "nothing: flannel sets it, ipam from the key beside \"delegate\"", "a value")
		}
	}
	return o.Err()
}

// render returns the delegate's configuration: the key "delegate", completed. Of a lease that is not whole it takes what there is.
func render(r *plugin.Request, leased subnet) *conf.Object {
	given := r.Config.Object("delegate")
	name, o := typeOf(given, usualDelegate), given.Copy()
	o.Set("type", name)
	o.Set("name", r.Network)
	o.Set("ipam", renderIPAM(r.Config.Object("ipam"), leased))
	o.SetFrom(r.Config, "runtimeConfig")
	if !o.Has("ipMasq") && leased.masquerades != nil {
		o.Set("ipMasq", new(!*leased.masquerades))
	}
	if !o.Has("mtu") {
		o.Set("mtu", leased.mtu)
	}
	if row := r.Plugins.Find(name); !o.Has("isGateway") && row != nil && row.Name == "bridge" {
		o.Set("isGateway", new(true))
	}
	return o
}

// renderIPAM returns the delegate's section ipam: the node's subnets are its ranges, and all nodes' networks are routes besides those it
// has.
func renderIPAM(given *conf.Object, leased subnet) *conf.Object {
	o := given.Copy()
	o.Set("type", typeOf(given, usualIPAM))
	var ranges [][]*conf.Object
	for _, p := range leased.own {
		ranges = append(ranges, []*conf.Object{member("subnet", p.String())})
	}
	o.Set("ranges", ranges)
	var routes []*conf.Object
	given.Objects("routes", func(route *conf.Object) { routes = append(routes, route) })
	for _, p := range leased.networks {
		routes = append(routes, member("dst", p.String()))
	}
	o.Set("routes", routes)
	return o
}

// Complete returns the configuration with the delegate's section ipam in place of its own, as far as the lease can be read.
func (Plugin) Complete(config *conf.Object) *conf.Object {
	leased, _ := readSubnet(subnetFile(config))
	config = config.Copy()
	config.Set("ipam", renderIPAM(config.Object("ipam"), leased))
	return config
}

// member returns an object with one member.
func member(key, value string) *conf.Object {
	o := conf.New()
	o.Set(key, value)
	return o
}

// renderBestEffort is render with as much of the lease as can be read: DEL and GC work without one.
func renderBestEffort(r *plugin.Request) *conf.Object {
	leased, _ := readSubnet(subnetFile(r.Config))
	return render(r, leased)
}

// subnet is what flannel's daemon says about this node. A pointer is nil if it does not say.
type subnet struct {
	networks    []netip.Prefix // of all nodes, IPv4 first
	own         []netip.Prefix // this node's part of them
	mtu         *int           // of the way to other nodes
	masquerades *bool          // the daemon does what ipMasq would
}

func readSubnet(path string) (subnet, error) {
	text, err := state.Read(path)
	if err != nil {
		return subnet{}, err
	}
	s, wrong := parseSubnet(string(text))
	if wrong != nil {
		err = fmt.Errorf("%s is missing a valid %s", path, strings.Join(wrong, ", "))
	}
	return s, err
}

// parseSubnet reads lines KEY=VALUE, and returns the keys that are missing or have a value that can't be.
func parseSubnet(text string) (s subnet, wrong []string) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	prefixes := func(keys ...string) (list []netip.Prefix) {
		for _, key := range keys {
			for _, part := range strings.FieldsFunc(values[key], func(c rune) bool { return c == ',' }) {
				p, err := netip.ParsePrefix(part)
				if err != nil {
					wrong = append(wrong, key)
				} else if p = p.Masked(); !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
		}
		if list == nil {
			wrong = append(wrong, strings.Join(keys, " or "))
		}
		return list
	}
	s.networks = prefixes("FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK")
	s.own = prefixes("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
	if mtu, err := strconv.ParseUint(values["FLANNEL_MTU"], 10, 16); err == nil {
		s.mtu = new(int(mtu))
	} else {
		wrong = append(wrong, "FLANNEL_MTU")
	}
	if text := values["FLANNEL_IPMASQ"]; text != "" {
		s.masquerades = new(text == "true")
	} else {
		wrong = append(wrong, "FLANNEL_IPMASQ")
	}
	return s, wrong
}
