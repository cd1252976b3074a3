package lint

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	ipam "github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// pool is a range of addresses, as a configuration has it.
type pool struct {
	*value
	subnet      netip.Prefix
	first, last netip.Addr
	set         int
	of          *part // the plugin whose interfaces get them
}

// overlaps reports whether two ranges have addresses in common.
func (p pool) overlaps(q pool) bool { return !p.last.Less(q.first) && !q.last.Less(p.first) }

// shares reports whether two ranges may hand out the same address.
func (p pool) shares(q pool) bool { return p.overlaps(q) && !p.excludes(q) && !q.excludes(p) }

// excludes reports whether one range leaves out all that it has in common with another, by one network.
func (p pool) excludes(q pool) bool {
	first, last := p.first, p.last
	if first.Less(q.first) {
		first = q.first
	}
	if q.last.Less(last) {
		last = q.last
	}
	list := p.get("exclude")
	return list != nil && slices.ContainsFunc(list.items, func(e *value) bool {
		out, err := netip.ParsePrefix(e.text)
		return err == nil && out.Contains(first) && out.Contains(last)
	})
}

// sets returns the range sets: the range in "ipam" itself, and those of "ranges".
func sets(ipam *part) (sets [][]*value) {
	if ipam.get("subnet") != nil {
		sets = append(sets, []*value{ipam.value})
	}
	if ranges := ipam.get("ranges"); ranges != nil {
		for _, set := range ranges.items {
			sets = append(sets, set.items)
		}
	}
	return sets
}

// pools returns the ranges that can be read.
func pools(p *part) (list []pool) {
	if !p.ipam.reads("ranges") {
		return nil
	}
	for i, set := range sets(p.ipam) {
		for _, o := range set {
			subnet, err := netip.ParsePrefix(o.str("subnet"))
			if err != nil {
				continue
			}
			subnet = subnet.Masked()
			r := pool{value: o, subnet: subnet, first: subnet.Addr(), last: result.Last(subnet), set: i, of: p}
			if a, err := netip.ParseAddr(o.str("rangeStart")); err == nil && subnet.Contains(a) {
				r.first = a
			}
			if a, err := netip.ParseAddr(o.str("rangeEnd")); err == nil && subnet.Contains(a) {
				r.last = a
			}
			list = append(list, r)
		}
	}
	return list
}

var rangesOverlap = codes.Declare(finding.Code{Name: "ranges-overlap", Severity: finding.Error,
	Meaning: "Two ranges of one plugin have addresses in common: ADD fails.",
	Remedy:  "ranges that have none in common"})

// checkAddresses looks at the addresses, ranges and routes of an "ipam".
func (f *file) checkAddresses(p *part) {
	ranges := pools(p)
	for _, r := range ranges {
		f.checkRange(p, r)
	}
	for i, r := range ranges {
		for _, q := range ranges[:i] {
			if r.shares(q) {
				line, _ := f.position(q.at)
				f.report(rangesOverlap, r.get("subnet").span, "", nil, "%s has addresses of %s in line %d", r.subnet, q.subnet, line)
			}
		}
	}
	f.checkSets(p, ranges)
	f.checkPorts(p, ranges)
	f.checkFamilies(ranges)
	if list := p.ipam.get("addresses"); list != nil && p.ipam.reads("addresses") {
		for _, e := range list.items {
			if own, err := netip.ParsePrefix(e.str("address")); err == nil {
				f.checkGateway(p, e, own)
				f.checkUsable(e, own.Masked(), "address", "gateway")
				f.checkAlone(p, e, own)
			}
		}
	}
	f.checkGiven(p)
	if routes := p.ipam.get("routes"); routes != nil {
		for _, r := range routes.items {
			// The kernel refuses it for IPv4 alone.
			if dst, err := netip.ParsePrefix(r.str("dst")); err == nil && dst.Addr().Is4() && dst != dst.Masked() {
				f.reportHostBits(r.get("dst"), dst)
			}
		}
	}
}

var poolAbovePorts = codes.Declare(finding.Code{Name: "pool-above-ports", Severity: finding.Info,
	Meaning: "The kernel gives a bridge 1,023 ports, and the network has more addresses: with that many containers on a node ADD fails while addresses are left.",
	Remedy:  "nothing if a node has fewer containers; else `ptp`, or a second network with another bridge"})

// checkPorts compares how many containers have addresses with how many the bridge has ports for. A subnet of IPv6 is large whatever is meant.
func (f *file) checkPorts(p *part, ranges []pool) {
	pools := node.PoolsOf(p.of)
	if p.facts.Bridge == "" || len(pools) == 0 {
		return
	}
	least := slices.MinFunc(pools, func(a, b ipam.Pool) int { return cmp.Compare(a.Size(), b.Size()) })
	i := slices.IndexFunc(ranges, func(r pool) bool { return least.Contains(r.first.Next()) })
	if least.Size() > link.MostPorts && i >= 0 && ranges[i].subnet.Addr().Is4() {
		f.report(poolAbovePorts, ranges[i].get("subnet").span, "", nil, "%d addresses, and the bridge %s has ports for %d containers: for more on a node take ptp, or a second bridge",
			least.Size(), p.facts.Bridge, link.MostPorts)
	}
}

// checkSets looks at the range sets: there has to be one, and each has one family.
func (f *file) checkSets(p *part, ranges []pool) {
	if p.plugin != nil && p.ipam.reads("ranges") && !p.ipam.filledIn && p.ipam.get("subnet") == nil && p.ipam.get("ranges") == nil && !p.get("capabilities").isOn("ipRanges") {
		f.report(missingKey, p.ipam.typed, `"ranges": [[{"subnet": "10.88.0.0/16"}]]`, nil, "%s has no addresses to hand out: the key \"ranges\" is missing", p.ipam.kind)
	}
	for i := range ranges {
		if r := ranges[i]; i > 0 && r.set == ranges[i-1].set && r.subnet.Addr().Is4() != ranges[i-1].subnet.Addr().Is4() {
			f.report(refused, r.get("subnet").span, "a list of its own in \"ranges\"", nil, "%s and %s are of two families, and in one range set", ranges[i-1].subnet, r.subnet)
		}
	}
}

var (
	rangeExchanged = codes.Declare(finding.Code{Name: "range-exchanged", Severity: finding.Error, Fixable: true,
		Meaning: "The first address of the range is behind the last: ADD fails.",
		Remedy:  "the two the other way round"})
	rangeOutside = codes.Declare(finding.Code{Name: "range-outside", Severity: finding.Error,
		Meaning: "The range has an address that is not in its subnet: ADD fails.",
		Remedy:  "an address of the subnet"})
	onlyCnibox = codes.Declare(finding.Code{Name: "only-cnibox", Severity: finding.Info,
		Meaning: "cnibox alone knows this. The reference plugins ignore or refuse it, so that the file means something else there."})
)

// checkRange looks at one range.
func (f *file) checkRange(p *part, r pool) {
	start, serr := netip.ParseAddr(r.str("rangeStart"))
	end, eerr := netip.ParseAddr(r.str("rangeEnd"))
	for _, name := range []string{"rangeStart", "rangeEnd"} {
		if a, err := netip.ParseAddr(r.str(name)); err == nil && !r.subnet.Contains(a) {
			f.report(rangeOutside, r.get(name).span, "an address of "+r.subnet.String(), nil, "%s is not in %s", a, r.subnet)
		}
	}
	if serr == nil && eerr == nil && end.Less(start) && r.subnet.Contains(start) && r.subnet.Contains(end) {
		s, e := r.get("rangeStart"), r.get("rangeEnd")
		f.report(rangeExchanged, s.span, strconv.Quote(end.String()), []edit{{s.at, s.end, string(f.Text[e.at:e.end])}, {e.at, e.end, string(f.Text[s.at:s.end])}},
			"%s, the first address, is behind %s, the last", start, end)
	}
	f.checkGateway(p, r.value, r.subnet)
	f.checkUsable(r.value, r.subnet, "subnet", "rangeStart", "gateway") // nerdctl writes the last address as rangeEnd
	f.checkAlone(p, r.value, r.subnet)
	if room := r.subnet.Addr().BitLen() - r.subnet.Bits(); room < 2 && p.ipam.facts.LeasesInFiles {
		f.report(onlyCnibox, r.get("subnet").span, "", nil, "%s is too small for the reference host-local: it wants at least four addresses", r.subnet)
	}
}

var gatewayOutside = codes.Declare(finding.Code{Name: "gateway-outside", Severity: finding.Error,
	Meaning: "The gateway is not in the subnet. The container can't reach it, so ADD fails or the container has no way out.",
	Remedy:  "an address of the subnet"})

// checkGateway looks whether the container can reach its gateway. By ptp it can reach any, and an ipvlan of layer 3 needs none. Where the host is
// none, 0.0.0.0 says that there is none.
func (f *file) checkGateway(p *part, o *value, subnet netip.Prefix) {
	gateway, err := netip.ParseAddr(o.str("gateway"))
	isNone := err == nil && gateway.IsUnspecified() && !p.isOn("isGateway") && !p.isOn("isDefaultGateway")
	if err != nil || isNone || subnet.Contains(gateway) || p.facts.AnyGateway || p.plugin == nil {
		return
	}
	f.report(gatewayOutside, o.get("gateway").span, "an address of "+subnet.Masked().String(), nil, "%s is not in %s", gateway, subnet.Masked())
}

var versionTooOld = codes.Declare(finding.Code{Name: "version-too-old", Severity: finding.Error,
	Meaning: "The plugin, or what the configuration asks of it, needs a newer `cniVersion`.",
	Remedy:  "a newer `cniVersion`, such as 1.0.0"})

// checkFamilies looks for several addresses of one family, which old versions of CNI don't have.
func (f *file) checkFamilies(ranges []pool) {
	if !plugin.KnownVersion(f.network.version) || plugin.AtLeast(f.network.version, "0.3.0") {
		return
	}
	for i, r := range ranges {
		for _, q := range ranges[:i] {
			if r.set != q.set && r.subnet.Addr().Is4() == q.subnet.Addr().Is4() {
				f.report(versionTooOld, f.network.at, `"1.0.0"`, nil, "two addresses of one family need a cniVersion of 0.3.0 or newer, and the network has %s", f.network.version)
				return
			}
		}
	}
}
