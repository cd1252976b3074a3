package iptables

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	netfilter "github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// The chains that all port maps share.
const (
	dnatChain = "CNI-HOSTPORT-DNAT"
	markChain = "CNI-HOSTPORT-SETMARK"
	masqChain = "CNI-HOSTPORT-MASQ"
)

// PortMaps returns the rules of port maps: the shared ones, the container's chain, and the entries that lead to it.
func PortMaps(key plugin.Key, ports netfilter.PortMaps) Wants {
	w := Wants{use: PortMapping, err: validatePorts(ports), chains: []string{dnatChain}, ports: ports}
	marking := ports.SNAT && ports.SetMarkChain == ""
	if marking {
		w.chains = append(w.chains, markChain, masqChain)
	}
	for _, f := range families() {
		maps := filter(ports.Maps, func(m netfilter.PortMap) bool { return familyOf(m.Container.Addr()) == f })
		if len(maps) == 0 {
			continue
		}
		if marking {
			mark := fmt.Sprintf("%#x/%#x", uint32(1)<<ports.MarkBit, uint32(1)<<ports.MarkBit)
			w.shared = append(w.shared,
				rule{family: f, chain: markChain, spec: `-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark ` + mark},
				rule{family: f, chain: masqChain, spec: "-m mark --mark " + mark + " -j MASQUERADE"},
				// Before the jumps to containers' masquerading, which would accept them.
				rule{family: f, chain: "POSTROUTING", spec: `-m comment --comment "CNI portfwd requiring masquerade" -j ` + masqChain, first: true})
		}
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			w.shared = append(w.shared, rule{family: f, chain: chain, spec: "-m addrtype --dst-type LOCAL -j " + dnatChain})
		}
		for _, m := range maps {
			w.own = append(w.own, dnatRules(f, w.use.chains(key)[0], ports, m)...)
		}
		w.own = append(w.own, entryRules(f, key, ports)...)
	}
	if slices.ContainsFunc(ports.Maps, func(m netfilter.PortMap) bool { return m.Container.Addr().Is4() }) {
		w.localhost = ports.SNATLink()
	}
	return w
}

func validatePorts(ports netfilter.PortMaps) error {
	for _, w := range slices.Concat(ports.Conditions4, ports.Conditions6) {
		if !isQuotable(w) {
			return plugin.ConfigError(fmt.Sprintf("use words of at most %d printable characters", maxWord),
				"conditions: iptables can't be given the word %q", w)
		}
	}
	if ports.SetMarkChain == "" {
		return nil
	}
	return ValidateChain("externalSetMarkChain", ports.SetMarkChain)
}

// dnatRules are the rules of the container's chain for a port: what marks connections to be masqueraded, which are those
// from the container's network and the host's loopback addresses, then what redirects.
func dnatRules(f *family, chain string, ports netfilter.PortMaps, m netfilter.PortMap) (rules []rule) {
	protocol, mark := netfilter.ProtocolName(m.Protocol), cmp.Or(ports.SetMarkChain, markChain)
	match := fmt.Sprintf("-p %s -m %s --dport %d", protocol, protocol, m.HostPort)
	if m.HostIP.IsValid() {
		match = "-d " + alone(m.HostIP) + " " + match
	}
	network := alone(m.Container.Addr()) // if it is not known
	for _, p := range ports.Networks {
		if p.Addr() == m.Container.Addr() {
			network = p.Masked().String()
		}
	}
	sources := []string{"-s " + network + " ", "-s 127.0.0.1/32 "}
	switch {
	case !ports.SNAT:
		sources = nil
	case ports.MasqAll:
		sources = []string{""}
	case f == &ipv6:
		sources = sources[:1]
	}
	for _, source := range sources {
		rules = append(rules, rule{family: f, chain: chain, spec: source + match + " -j " + mark})
	}
	return append(rules, rule{family: f, chain: chain, spec: match + " -j DNAT --to-destination " + m.Container.String()})
}

// entryRules lead to the container's chain, by protocol. They name the ports of both families, as the reference plugin's do.
func entryRules(f *family, key plugin.Key, ports netfilter.PortMaps) (rules []rule) {
	conditions := ""
	for _, word := range map[*family][]string{&ipv4: ports.Conditions4, &ipv6: ports.Conditions6}[f] {
		conditions += quote(word) + " "
	}
	for _, protocol := range []string{"sctp", "tcp", "udp"} { // sorted
		const atOnce = 15 // a rule takes no more (multiport)
		for list := range slices.Chunk(hostPorts(protocol, ports.Maps), atOnce) {
			rules = append(rules, rule{family: f, chain: dnatChain, spec: fmt.Sprintf("-p %s %s -m multiport --dports %s %s-j %s",
				protocol, PortMapping.commentOf(key), strings.Join(list, ","), conditions, PortMapping.chains(key)[0])})
		}
	}
	return rules
}

// hostPorts returns the host ports of a protocol, those that are in both families once.
func hostPorts(protocol string, maps []netfilter.PortMap) (list []string) {
	first := map[netfilter.PortMap]*family{} // by the host's side
	for _, m := range maps {
		side, f := hostSide(m), familyOf(m.Container.Addr())
		if netfilter.ProtocolName(m.Protocol) == protocol && (first[side] == nil || first[side] == f) {
			first[side] = f
			list = append(list, strconv.Itoa(int(m.HostPort)))
		}
	}
	return list
}

// hostSide is equal for port maps of the same port of the host.
func hostSide(m netfilter.PortMap) netfilter.PortMap {
	m.Container = netip.AddrPort{}
	return m
}

// portMapOf reads a port map from the rule that redirects to the container.
func portMapOf(r rule) (m netfilter.PortMap, ok bool) {
	protocol, ok := netfilter.Protocol(r.option("-p"))
	port, errPort := strconv.ParseUint(r.option("--dport"), 10, 16)
	to, errTo := netip.ParseAddrPort(r.option("--to-destination"))
	host, errHost := netip.ParsePrefix(r.option("-d"))
	m = netfilter.PortMap{Protocol: protocol, HostPort: uint16(port), Container: to, HostIP: host.Addr()}
	return m, ok && errPort == nil && errTo == nil && (errHost == nil || r.option("-d") == "")
}

// evict makes sure that nobody else has the ports, but for attachments that are gone, which it returns: their address is
// that of the container which the ports are to lead to, or their network namespace is known to be gone.
func evict(owned []rule, t *table, key plugin.Key, ports netfilter.PortMaps) (gone []plugin.Key, err error) {
	for _, r := range t.rules {
		if !PortMapping.isChain(r.chain) {
			continue
		}
		other, ok := portMapOf(r)
		i := slices.IndexFunc(ports.Maps, func(m netfilter.PortMap) bool {
			return familyOf(m.Container.Addr()) == t.family && hostSide(m) == hostSide(other)
		})
		if i < 0 || !ok {
			continue
		}
		holder := publisher(owned, t, r, key)
		if holder == key {
			continue
		}
		if other.Container.Addr() != ports.Maps[i].Container.Addr() {
			if isGone, known := results.KnownGone(ports.Results, holder); !isGone {
				return nil, plugin.Errorf(known+"; publish another port of the host, or stop that container (network/container/interface); "+
					"if it is gone, the network's GC frees the port", "host port %s is already published by %s", ports.Maps[i], holder)
			}
		}
		gone = append(gone, holder)
	}
	return gone, nil
}

// publisher returns the attachment that a rule of a container's chain is for. The reference plugin does not say for which
// interface it is: it is taken to have the name that the one who asks has.
func publisher(owned []rule, t *table, r rule, asking plugin.Key) plugin.Key {
	for _, o := range owned {
		if o.owner.use == PortMapping.name && sameRule(o, r) {
			return o.owner.key
		}
	}
	if slices.Contains(PortMapping.chains(asking), r.chain) {
		return asking
	}
	holder := plugin.Key{IfName: asking.IfName}
	for _, entry := range t.jumpsTo(r.chain) {
		_, comment, _ := strings.Cut(strings.ReplaceAll(entry.spec, `\"`, `"`), `--comment "`)
		if _, err := fmt.Sscanf(comment, "dnat name: %q id: %q", &holder.Network, &holder.ContainerID); err == nil {
			return holder
		}
	}
	return plugin.Key{Network: "?", ContainerID: r.chain, IfName: "?"}
}

// guard drops what comes from elsewhere for 127.0.0.0/8. Where route_localnet is off the kernel does so itself
// (ip-sysctl.rst); with it on, containers would reach what the host serves there for itself (CVE-2020-8558). It stays: the
// switch stays on as long as the link is there.
var guard = rule{family: &ipv4, chain: "PREROUTING", spec: `-d 127.0.0.0/8 ! -i lo -m comment --comment "cnibox: route_localnet" -j DROP`}

const guardTable = "raw"

// allowLocalhost has the host reach ports behind a link by 127.0.0.1, when the guard is there.
func allowLocalhost(ctx context.Context, link string) error {
	t, err := plainTable(guard.family, guardTable)
	if err == nil {
		err = t.edit(ctx, change{shared: []rule{guard}})
	}
	if err != nil {
		return plugin.Errorf(`the kernel must have table raw of iptables (iptable_raw, or nf_tables); or set "snat" to false to do without`,
			"keep containers from 127.0.0.1 of the host: %v", err)
	}
	return netfilter.AllowLocalhost(link)
}

// checkLocalhost makes sure of both. What the reference plugin made has no guard.
func checkLocalhost(ctx context.Context, link string, isGuarded bool) error {
	if isGuarded {
		t, err := plainTable(guard.family, guardTable)
		if err != nil {
			return err
		}
		if lacking, err := t.lacking(ctx, guard); err != nil || len(lacking) > 0 {
			return plugin.Errorf("something removed it after ADD (a flush, a restart of a firewall?): "+
				"the ADD of any container with published ports makes it again",
				"iptables, table %s: the rule is missing that keeps containers from 127.0.0.1 of the host", guardTable)
		}
	}
	return netfilter.CheckLocalhost(link)
}
