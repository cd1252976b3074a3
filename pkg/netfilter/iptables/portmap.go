package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The chains that all port maps share.
const (
	dnatChain = "CNI-HOSTPORT-DNAT"
	markChain = "CNI-HOSTPORT-SETMARK"
	masqChain = "CNI-HOSTPORT-MASQ"
)

// AddPortMaps implements netfilter.PortMapper.
func (*Backend) AddPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	if err := validatePorts(ports); err != nil {
		return err
	}
	w := portWants(key, ports)
	w.results = ports.Results
	if needsLocalhost(ports) {
		w.after = func() error {
			if err := guardLocalhost(); err != nil {
				return err
			}
			return netfilter.AllowLocalhost(ports.Inside)
		}
	}
	return add(ctx, attachment{forPorts(), key}, w)
}

// DelPortMaps implements netfilter.PortMapper.
func (b *Backend) DelPortMaps(ctx context.Context, key plugin.Key, hint []netip.Prefix) ([]netfilter.PortMap, error) {
	removed, err := del(ctx, b, attachment{forPorts(), key}, addrsOf(hint))
	var maps []netfilter.PortMap
	for _, r := range removed {
		if m, ok := portMapOf(r); ok {
			maps = append(maps, m)
		}
	}
	return maps, err
}

// CheckPortMaps implements netfilter.PortMapper.
func (*Backend) CheckPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	if err := validatePorts(ports); err != nil {
		return err
	}
	if err := check(ctx, attachment{forPorts(), key}, portWants(key, ports)); err != nil {
		return err
	}
	if !needsLocalhost(ports) {
		return nil
	}
	r, err := loadRecord(attachment{forPorts(), key})
	if err == nil && r.of(key.IfName) != nil { // the reference plugin has no guard
		err = checkGuard()
	}
	if err != nil {
		return err
	}
	if allowed, err := netfilter.LocalhostAllowed(ports.Inside); err != nil || !allowed {
		return plugin.Errorf(fmt.Sprintf("set it with `sysctl -w net.ipv4.conf.%s.route_localnet=1`, or restart the container", ports.Inside), "route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", ports.Inside)
	}
	return nil
}

// GCPortMaps implements netfilter.PortMapper.
func (*Backend) GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	return collect(ctx, forPorts(), network, valid)
}

// needsLocalhost tells whether ports are published on 127.0.0.1.
func needsLocalhost(ports netfilter.PortMaps) bool {
	return ports.SNATLink() != "" &&
		slices.ContainsFunc(ports.Maps, func(m netfilter.PortMap) bool { return m.Container.Addr().Is4() })
}

func validatePorts(ports netfilter.PortMaps) error {
	if ports.SetMarkChain != "" {
		if err := validateChain("externalSetMarkChain", ports.SetMarkChain); err != nil {
			return err
		}
	}
	for _, w := range slices.Concat(ports.Conditions4, ports.Conditions6) {
		if !quotable(w) {
			return plugin.ConfigError(fmt.Sprintf("use words of at most %d printable characters", maxWord),
				"conditions: iptables can't be given the word %q", w)
		}
	}
	return nil
}

// maxChainName is the length of the longest name of a chain.
const maxChainName = 28

// validateChain refuses names that iptables would take for something else.
func validateChain(key, name string) error {
	if quotable(name) && len(name) <= maxChainName && !strings.ContainsAny(name, ` "\`) && !strings.ContainsAny(name[:1], "-!:") {
		return nil
	}
	return plugin.ConfigError(fmt.Sprintf("use a name of at most %d letters, digits and dashes", maxChainName),
		"%s: %q is no name of a chain", key, name)
}

// portWants returns the rules of port maps: the shared ones, the container's
// chain, and the entries that lead to it.
func portWants(key plugin.Key, ports netfilter.PortMaps) wants {
	var w wants
	marking := ports.SNAT && ports.SetMarkChain == ""
	if marking {
		w.chains = append(w.chains, markChain, masqChain)
	}
	w.chains = append(w.chains, dnatChain)
	for _, f := range families() {
		maps := mapsOf(f, ports.Maps)
		if len(maps) == 0 {
			continue
		}
		if marking {
			w.shared = append(w.shared, markRules(f, ports.MarkBit)...)
		}
		w.shared = append(w.shared, topRules(f)...)
		w.own = append(w.own, dnatRules(f, key, ports, maps)...)
		w.own = append(w.own, entryRules(f, key, ports)...)
	}
	return w
}

func mapsOf(f family, maps []netfilter.PortMap) []netfilter.PortMap {
	return slices.DeleteFunc(slices.Clone(maps), func(m netfilter.PortMap) bool { return familyOf(m.Container.Addr()) != f })
}

// markRules mark connections and masquerade those that are marked. The jump goes
// before those to containers' masquerading, which would accept them.
func markRules(f family, bit int) []rule {
	mark := fmt.Sprintf("%#x/%#x", uint32(1)<<bit, uint32(1)<<bit)
	return []rule{
		{family: f, chain: markChain, spec: `-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark ` + mark},
		{family: f, chain: masqChain, spec: "-m mark --mark " + mark + " -j MASQUERADE"},
		{family: f, chain: "POSTROUTING", spec: `-m comment --comment "CNI portfwd requiring masquerade" -j ` + masqChain, first: true},
	}
}

// topRules send what is for the host itself to the entries.
func topRules(f family) []rule {
	const spec = "-m addrtype --dst-type LOCAL -j " + dnatChain
	return []rule{{family: f, chain: "PREROUTING", spec: spec}, {family: f, chain: "OUTPUT", spec: spec}}
}

// dnatRules are the rules of the container's chain: for each port, what marks
// connections to be masqueraded, then what redirects.
func dnatRules(f family, key plugin.Key, ports netfilter.PortMaps, maps []netfilter.PortMap) []rule {
	chain := attachment{forPorts(), key}.chain()
	mark := markChain
	if ports.SetMarkChain != "" {
		mark = ports.SetMarkChain
	}
	var rules []rule
	for _, m := range maps {
		match := matchOf(m)
		if ports.SNAT {
			for _, source := range markSources(f, ports, m.Container.Addr()) {
				rules = append(rules, rule{family: f, chain: chain, spec: source + match + " -j " + mark})
			}
		}
		rules = append(rules, rule{family: f, chain: chain, spec: match + " -j DNAT --to-destination " + m.Container.String()})
	}
	return rules
}

func matchOf(m netfilter.PortMap) string {
	protocol := netfilter.ProtocolName(m.Protocol)
	match := "-p " + protocol + " -m " + protocol + " --dport " + strconv.Itoa(int(m.HostPort))
	if m.HostIP.IsValid() {
		match = "-d " + alone(m.HostIP) + " " + match
	}
	return match
}

// markSources returns the options for the sources whose connections are
// masqueraded: the container's network and the host's loopback addresses, or
// all of them.
func markSources(f family, ports netfilter.PortMaps, container netip.Addr) []string {
	if ports.MasqAll {
		return []string{""}
	}
	sources := []string{"-s " + networkOf(ports, container) + " "}
	if f == ipv4 {
		sources = append(sources, "-s 127.0.0.1/32 ")
	}
	return sources
}

// networkOf returns the network of the container's address, the address alone if
// it is not known.
func networkOf(ports netfilter.PortMaps, container netip.Addr) string {
	for _, p := range ports.Networks {
		if p.Addr() == container {
			return p.Masked().String()
		}
	}
	return alone(container)
}

// maxPorts is how many ports one rule takes (multiport).
const maxPorts = 15

// entryRules lead to the container's chain, by protocol. They name the ports of
// both families, as the reference plugin's do.
func entryRules(f family, key plugin.Key, ports netfilter.PortMaps) []rule {
	target := attachment{forPorts(), key}.chain()
	comment := quote(trimComment(portsComment(key.Network) + `id: "` + key.ContainerID + `"`))
	conditions := ports.Conditions4
	if f == ipv6 {
		conditions = ports.Conditions6
	}
	words := ""
	for _, w := range conditions {
		words += " " + quote(w)
	}
	var rules []rule
	for _, protocol := range []string{"sctp", "tcp", "udp"} { // sorted
		for list := range slices.Chunk(hostPorts(protocol, ports.Maps), maxPorts) {
			spec := "-p " + protocol + " -m comment --comment " + comment + " -m multiport --dports " + strings.Join(list, ",") + words + " -j " + target
			rules = append(rules, rule{family: f, chain: dnatChain, spec: spec})
		}
	}
	return rules
}

// portsComment is what the comments of a network's entries begin with.
func portsComment(network string) string { return `dnat name: "` + network + `" ` }

// hostPorts returns the host ports of a protocol, those that are in both
// families once.
func hostPorts(protocol string, maps []netfilter.PortMap) []string {
	type side struct {
		ip   netip.Addr
		port uint16
	}
	first := map[side]family{}
	var list []string
	for _, m := range maps {
		if netfilter.ProtocolName(m.Protocol) != protocol {
			continue
		}
		s, f := side{m.HostIP, m.HostPort}, familyOf(m.Container.Addr())
		if before, there := first[s]; there && before != f {
			continue
		}
		first[s] = f
		list = append(list, strconv.Itoa(int(m.HostPort)))
	}
	return list
}

// portMapOf reads a port map from the rule that redirects to the container.
func portMapOf(r rule) (m netfilter.PortMap, ok bool) {
	w, _ := words(r.spec)
	if option(w, "-j") != "DNAT" {
		return m, false
	}
	if m.Protocol, ok = netfilter.Protocol(option(w, "-p")); !ok {
		return m, false
	}
	port, err := strconv.ParseUint(option(w, "--dport"), 10, 16)
	if err != nil {
		return m, false
	}
	m.HostPort = uint16(port)
	if host := option(w, "-d"); host != "" {
		p, err := netip.ParsePrefix(host)
		if err != nil {
			return m, false
		}
		m.HostIP = p.Addr()
	}
	m.Container, err = netip.ParseAddrPort(option(w, "--to-destination"))
	return m, err == nil
}
