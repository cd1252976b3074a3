package lint

import (
	"net/netip"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/result"
)

var (
	addressUnusable = codes.Declare(finding.Code{Name: "address-unusable", Severity: finding.Error,
		Meaning: "No container can have such an address: it is for groups (224.0.0.0/4, ff00::/8), or never leaves a host (127.0.0.0/8, ::1).",
		Remedy:  "addresses of a private network, such as 10.88.0.0/16"})
	networkAddress = codes.Declare(finding.Code{Name: "network-address", Severity: finding.Warning,
		Meaning: "The first address of a subnet is the network's own, and the last one means all hosts in it. A container or gateway that has one of them is not reached by others.",
		Remedy:  "another address of the subnet"})
	gatewayMissing = codes.Declare(finding.Code{Name: "gateway-missing", Severity: finding.Error,
		Meaning: "The address is alone in its subnet, which has no room for the gateway that the plugin needs: ADD fails.",
		Remedy:  "`gateway`, or a larger subnet"})
	addressesMissing = codes.Declare(finding.Code{Name: "addresses-missing", Severity: finding.Warning,
		Meaning: "`static` has no address to hand out and does not ask the runtime for any: ADD fails, unless `CNI_ARGS` has one.",
		Remedy:  "`addresses`, or `capabilities` with `ips`"})
	gatewayOfRouter = codes.Declare(finding.Code{Name: "gateway-of-router", Severity: finding.Error,
		Meaning: "The DHCP server names the router of the network, and the bridge takes the router's address: nobody on the network reaches the router any more.",
		Remedy:  "`isGateway` and `isDefaultGateway` left out"})
)

// checkUsable looks whether hosts can have the addresses at some keys of an object.
func (f *file) checkUsable(o *value, subnet netip.Prefix, names ...string) {
	for _, name := range names {
		addr, err := netip.ParseAddr(o.str(name))
		if p, wrong := netip.ParsePrefix(o.str(name)); wrong == nil {
			addr, err = p.Addr(), nil
		}
		hasOwn := subnet.Addr().Is4() && subnet.Bits() < 31 && name != "subnet" // others of IPv6, and of two hosts, have none that mean all
		switch {
		case err != nil:
		case addr.IsMulticast(), addr.IsLoopback():
			f.report(addressUnusable, o.get(name).span, "", nil, "%s can't be the address of a container or a gateway", o.str(name))
		case hasOwn && addr == subnet.Addr():
			f.report(networkAddress, o.get(name).span, "", nil, "%s is the address of the network %s itself", addr, subnet)
		case hasOwn && addr == result.Last(subnet):
			f.report(networkAddress, o.get(name).span, "", nil, "%s means all hosts in %s", addr, subnet)
		}
	}
}

// checkAlone looks for an address without a gateway in a subnet that has no other address, where the plugin needs a gateway.
func (f *file) checkAlone(p *part, o *value, subnet netip.Prefix) {
	needs := p.facts.IsGateway && (p.facts.Bridge == "" || p.isOn("isDefaultGateway"))
	if needs && subnet.IsSingleIP() && o.str("gateway") == "" {
		where := o.get("subnet")
		if where == nil {
			where = o.get("address")
		}
		f.report(gatewayMissing, where.span, `"gateway": "…"`, nil, "%s has no gateway, which %s needs", subnet, p.kind)
	}
}

// checkGiven looks whether containers are given addresses at all, and whose address the gateway takes.
func (f *file) checkGiven(p *part) {
	asks := p.get("capabilities").isOn("ips") || p.get("runtimeConfig").get("ips") != nil || p.get("args").get("cni").get("ips") != nil
	addresses := p.ipam.get("addresses")
	if p.ipam.reads("addresses") && !asks && (addresses == nil || addresses.kind == '[' && len(addresses.items) == 0) {
		f.report(addressesMissing, p.ipam.typed, `"addresses": [{"address": "10.88.0.7/24"}]`, nil, "%s has no addresses, and asks the runtime for none", p.ipam.kind)
	}
	if p.facts.Bridge == "" || !p.ipam.facts.RenewsInside {
		return
	}
	for _, name := range []string{"isGateway", "isDefaultGateway"} {
		if p.isOn(name) {
			f.report(gatewayOfRouter, p.member(name).key, "nothing", nil, "with %q %s takes the address of the router that %s is told of", name, p.facts.Bridge, p.ipam.kind)
		}
	}
}
