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
func (b *Backend) AddPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	if err := validatePorts(ports); err != nil {
		return err
	}
	w := portWants(key, ports)
	w.free = func(t *table) error { return b.freePorts(ctx, key, t, ports.Maps) }
	w.after = func() error {
		if !needsLocalhost(ports) {
			return nil
		}
		if err := guardLocalhost(); err != nil {
			return err
		}
		return netfilter.AllowLocalhost(ports.Inside)
	}
	return b.hold(ctx, forPorts(), key, w)
}

// DelPortMaps implements netfilter.PortMapper.
func (b *Backend) DelPortMaps(ctx context.Context, key plugin.Key, _ []netip.Prefix) (maps []netfilter.PortMap, err error) {
	removed, err := b.release(ctx, removal{use: forPorts(), keys: []plugin.Key{key}})
	for _, r := range removed {
		if m, ok := portMapOf(r); ok {
			maps = append(maps, m)
		}
	}
	return maps, err
}

// CheckPortMaps implements netfilter.PortMapper.
func (b *Backend) CheckPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	if err := validatePorts(ports); err != nil {
		return err
	}
	if err := b.check(ctx, forPorts(), key, portWants(key, ports)); err != nil || !needsLocalhost(ports) {
		return err
	}
	list, err := readOwners()
	if err == nil && len(list.of(owner{forPorts().name, key})) > 0 { // the reference plugin has no guard
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
func (b *Backend) GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	return b.collect(ctx, forPorts(), network, valid)
}

// freePorts makes sure that nobody else has the ports. They are taken from an
// attachment that is gone: its address is that of the container which they are to lead
// to, or its network namespace is known to be gone.
func (b *Backend) freePorts(ctx context.Context, key plugin.Key, t *table, maps []netfilter.PortMap) error {
	l, err := t.list(ctx)
	if err != nil {
		return err
	}
	list, err := readOwners()
	if err != nil {
		return err
	}
	done := map[plugin.Key]bool{key: true}
	for _, r := range l.rules {
		if !forPorts().isChain(r.chain) {
			continue
		}
		other, ok := portMapOf(r)
		i := slices.IndexFunc(maps, func(m netfilter.PortMap) bool {
			return ok && familyOf(m.Container.Addr()) == t.family && m.HostIP == other.HostIP && m.Protocol == other.Protocol && m.HostPort == other.HostPort
		})
		if i < 0 {
			continue
		}
		holder := list.publisher(l, r, key)
		if done[holder] {
			continue
		}
		if other.Container.Addr() != maps[i].Container.Addr() {
			if gone, known := netfilter.Gone(netfilter.ResultCache, holder); !gone {
				return portTaken(maps[i], holder, known)
			}
		}
		done[holder] = true
		if _, err := b.releaseLocked(ctx, removal{use: forPorts(), keys: []plugin.Key{holder}}); err != nil {
			return err
		}
		t.read = nil
	}
	return nil
}

// publisher returns the attachment that a rule of a container's chain is for. The
// reference plugin does not say for which interface it is: most have but one, with the
// same name as others.
func (list owners) publisher(l *listing, r rule, asking plugin.Key) plugin.Key {
	for _, h := range list {
		if h.use == forPorts().name && sameRule(h.rule, r) {
			return h.key
		}
	}
	if forPorts().chains(asking)[0] == r.chain {
		return asking
	}
	holder := plugin.Key{IfName: asking.IfName}
	for _, entry := range l.jumpsTo(r.chain) {
		_, err := fmt.Sscanf(option(words(entry.spec), "--comment"), "dnat name: %q id: %q", &holder.Network, &holder.ContainerID)
		if err == nil {
			return holder
		}
	}
	return plugin.Key{Network: "?", ContainerID: r.chain, IfName: "?"}
}

func portTaken(m netfilter.PortMap, holder plugin.Key, known string) error {
	return plugin.Errorf(fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known), "host port %s is already published by %s", m, holder)
}

// needsLocalhost reports whether ports are published on 127.0.0.1.
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
		maps := filter(ports.Maps, func(m netfilter.PortMap) bool { return familyOf(m.Container.Addr()) == f })
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

// markRules mark connections and masquerade those that are marked. The jump goes
// before those to containers' masquerading, which would accept them.
func markRules(f *family, bit int) []rule {
	mark := fmt.Sprintf("%#x/%#x", uint32(1)<<bit, uint32(1)<<bit)
	return []rule{
		{family: f, chain: markChain, spec: `-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark ` + mark},
		{family: f, chain: masqChain, spec: "-m mark --mark " + mark + " -j MASQUERADE"},
		{family: f, chain: "POSTROUTING", spec: `-m comment --comment "CNI portfwd requiring masquerade" -j ` + masqChain, first: true},
	}
}

// topRules send what is for the host itself to the entries.
func topRules(f *family) []rule {
	const spec = "-m addrtype --dst-type LOCAL -j " + dnatChain
	return []rule{{family: f, chain: "PREROUTING", spec: spec}, {family: f, chain: "OUTPUT", spec: spec}}
}

// dnatRules are the rules of the container's chain: for each port, what marks
// connections to be masqueraded, then what redirects.
func dnatRules(f *family, key plugin.Key, ports netfilter.PortMaps, maps []netfilter.PortMap) []rule {
	chain := forPorts().chains(key)[0]
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
func markSources(f *family, ports netfilter.PortMaps, container netip.Addr) []string {
	if ports.MasqAll {
		return []string{""}
	}
	sources := []string{"-s " + networkOf(ports, container) + " "}
	if f == &ipv4 {
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
func entryRules(f *family, key plugin.Key, ports netfilter.PortMaps) []rule {
	target := forPorts().chains(key)[0]
	conditions := ports.Conditions4
	if f == &ipv6 {
		conditions = ports.Conditions6
	}
	words := ""
	for _, w := range conditions {
		words += " " + quote(w)
	}
	var rules []rule
	for _, protocol := range []string{"sctp", "tcp", "udp"} { // sorted
		for list := range slices.Chunk(hostPorts(protocol, ports.Maps), maxPorts) {
			spec := "-p " + protocol + " " + forPorts().commentOf(key) + " -m multiport --dports " + strings.Join(list, ",") + words + " -j " + target
			rules = append(rules, rule{family: f, chain: dnatChain, spec: spec})
		}
	}
	return rules
}

// hostPorts returns the host ports of a protocol, those that are in both
// families once.
func hostPorts(protocol string, maps []netfilter.PortMap) []string {
	type side struct {
		ip   netip.Addr
		port uint16
	}
	first := map[side]*family{}
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
	w := words(r.spec)
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
