package lint

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// limits are the keys of rates and bursts, in bits.
var limits = []string{"ingressRate", "ingressBurst", "egressRate", "egressBurst"}

// limited is the capability that has them from the runtime.
const limited = "bandwidth"

const (
	usualMTU     = 1500
	linkHeader   = 14    // bytes of an Ethernet header
	modem        = 56000 // bits a second
	bitsOfOctets = 8
)

var (
	burstTooSmall = codes.Declare(finding.Code{Name: "burst-too-small", Severity: finding.Error,
		Meaning: "A burst has less room than one packet: the kernel drops all packets of full size. Rates and bursts are in bits, not bytes.",
		Remedy:  "at least 12112 for an MTU of 1500"})
	missingKey = codes.Declare(finding.Code{Name: "missing-key", Severity: finding.Error,
		Meaning: "A key that the plugin needs is not there: ADD fails.",
		Remedy:  "the key"})
	mtuTooSmall = codes.Declare(finding.Code{Name: "mtu-too-small", Severity: finding.Warning,
		Meaning: "IPv6 needs an MTU of 1280. Below that the kernel takes all IPv6 addresses from the link.",
		Remedy:  "1280 or more"})
	rateTooLow = codes.Declare(finding.Code{Name: "rate-too-low", Severity: finding.Warning,
		Meaning: "The rate is lower than a modem's. Rates are in bits a second.",
		Remedy:  "the rate in bits a second"})
)

// checkLimits looks at rates, bursts and MTUs.
func (f *file) checkLimits(p *part) {
	if mtu, set := p.num("mtu"); set && mtu >= 68 && mtu < node.LeastMTU6 && f.hasIPv6(p) {
		f.report(mtuTooSmall, p.get("mtu").span, "1280 or more", nil, "IPv6 does not work with an MTU of %d", mtu)
	}
	if !p.reads(limits[0]) {
		return
	}
	for _, direction := range []string{"ingress", "egress"} {
		rate, _ := p.num(direction + "Rate")
		burst, _ := p.num(direction + "Burst")
		packet := f.largestPacket()
		switch {
		case rate > 0 && burst == 0:
			f.report(missingKey, p.member(direction+"Rate").key, `"`+direction+`Burst": …`, nil, "%sRate needs %sBurst: how much may pass at once", direction, direction)
		case rate == 0 && burst > 0:
			f.report(missingKey, p.member(direction+"Burst").key, `"`+direction+`Rate": …`, nil, "%sBurst needs %sRate", direction, direction)
		case burst > 0 && burst < packet:
			f.report(burstTooSmall, p.get(direction+"Burst").span, "at least the packet's size in bits", nil, "a burst of %d bits is less than one packet of %d bits: none of that size passes", burst, packet)
		}
		if rate >= bitsOfOctets && rate < modem && burst > 0 {
			f.report(rateTooLow, p.get(direction+"Rate").span, "the rate in bits a second", nil, "%d bits a second is less than a modem's; are these bytes, or kilobits?", rate)
		}
	}
}

// largestPacket returns the bits of the largest packet on the network's interfaces.
func (f *file) largestPacket() int {
	mtu := usualMTU
	for _, p := range f.network.chain {
		if n, set := p.num("mtu"); set && n >= 68 && p.reads("mtu") {
			mtu = n
		}
	}
	return (mtu + linkHeader) * bitsOfOctets
}

// hasIPv6 reports whether a plugin's interfaces get IPv6 addresses, as far as the configuration says it.
func (f *file) hasIPv6(p *part) bool {
	has := func(q *part) bool {
		if q.ipam == nil {
			return false
		}
		if list := q.ipam.get("addresses"); list != nil && slices.ContainsFunc(list.items, func(e *value) bool { return strings.Contains(e.str("address"), ":") }) {
			return true
		}
		return slices.ContainsFunc(pools(q), func(r pool) bool { return r.subnet.Addr().Is6() })
	}
	return has(p) || p.plugin != nil && p.plugin.Chained && slices.ContainsFunc(f.network.chain, has)
}

var unsafeSetting = codes.Declare(finding.Code{Name: "unsafe-setting", Severity: finding.Warning,
	Meaning: "The setting lets a container do what it should not, or takes away a protection of the host.",
	Remedy:  "the setting left out"})

// checkSafety looks for settings that take away a protection.
func (f *file) checkSafety(p *part) {
	onBridge := slices.ContainsFunc(f.network.chain, func(e *part) bool { return e.facts.Bridge != "" })
	if p.facts.Bridge != "" && p.isOn("acceptRA") {
		f.report(unsafeSetting, p.member("acceptRA").key, "nothing", nil, "any container of the bridge can pretend to be the others' IPv6 router")
	}
	sysctls := p.get("sysctl")
	if !p.reads("sysctl") || sysctls == nil {
		return
	}
	for i := range sysctls.members {
		m := &sysctls.members[i]
		name := strings.ReplaceAll(m.name, "/", ".")
		name = name[strings.LastIndexByte(name, '.')+1:]
		on := m.value.text != "0"
		why := ""
		switch {
		case name == "accept_ra" && on && onBridge:
			why = "any container of the bridge can pretend to be this one's IPv6 router"
		case name == "route_localnet" && on:
			why = "others on the network can reach what listens on 127.0.0.1"
		case name == "accept_source_route" && on && m.value.text != "-1":
			why = "who sends a packet chooses its way, past filters"
		case name == "accept_redirects" && on && onBridge:
			why = "any container of the bridge can redirect this one's packets to itself"
		}
		if why != "" {
			f.report(unsafeSetting, m.key, "nothing", nil, "%s: %s", m.name, why)
		}
	}
}
