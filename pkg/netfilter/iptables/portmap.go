package iptables

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/coreos/go-iptables/iptables"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// The chains that all port maps share.
const (
	dnatChain = "CNI-HOSTPORT-DNAT"
	markChain = "CNI-HOSTPORT-SETMARK"
	masqChain = "CNI-HOSTPORT-MASQ"
)

// PortMapRules returns the rules of port maps: the shared ones, the container's chain, and the entries that lead to it.
func PortMapRules(key plugin.Key, ports spec.PortNeeds) Rules {
	r := Rules{owner: owner{PortMapping, key}, err: validatePorts(ports), chains: []string{dnatChain}, ports: ports}
	marking := ports.SNAT && ports.SetMarkChain == ""
	if marking {
		r.chains = append(r.chains, markChain, masqChain)
	}
	for _, f := range families() {
		maps := filter(ports.Maps, func(m spec.PortMap) bool { return familyOf(m.Container.Addr()) == f })
		if len(maps) == 0 {
			continue
		}
		if marking {
			mark := fmt.Sprintf("%#x/%#x", uint32(1)<<ports.MarkBit, uint32(1)<<ports.MarkBit)
			r.shared = append(r.shared,
				rule{family: f, chain: markChain, spec: `-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark ` + mark},
				rule{family: f, chain: masqChain, spec: "-m mark --mark " + mark + " -j MASQUERADE"},
				// Before the jumps to containers' masquerading, which would accept them.
				rule{family: f, chain: "POSTROUTING", spec: `-m comment --comment "CNI portfwd requiring masquerade" -j ` + masqChain, first: true})
		}
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			r.shared = append(r.shared, rule{family: f, chain: chain, spec: "-m addrtype --dst-type LOCAL -j " + dnatChain})
		}
		for _, m := range maps {
			r.own = append(r.own, dnatRules(f, r.owner.chains()[0], ports, m)...)
		}
		r.own = append(r.own, entryRules(f, r.owner, ports)...)
	}
	if slices.ContainsFunc(ports.Maps, func(m spec.PortMap) bool { return m.Container.Addr().Is4() }) {
		r.localhost = ports.SNATLink()
	}
	return r
}

func validatePorts(ports spec.PortNeeds) error {
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
func dnatRules(f *family, chain string, ports spec.PortNeeds, m spec.PortMap) (rules []rule) {
	protocol, mark := spec.ProtocolName(m.Protocol), cmp.Or(ports.SetMarkChain, markChain)
	match := fmt.Sprintf("-p %s -m %s --dport %d", protocol, protocol, m.HostPort)
	if m.HostIP.IsValid() {
		match = "-d " + single(m.HostIP) + " " + match
	}
	network := single(m.Container.Addr()) // if it is not known
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
func entryRules(f *family, o owner, ports spec.PortNeeds) (rules []rule) {
	conditions := ""
	for _, word := range map[*family][]string{&ipv4: ports.Conditions4, &ipv6: ports.Conditions6}[f] {
		conditions += quote(word) + " "
	}
	for _, protocol := range []string{"sctp", "tcp", "udp"} { // sorted
		const atOnce = 15 // a rule takes no more (multiport)
		for list := range slices.Chunk(hostPorts(protocol, ports.Maps), atOnce) {
			rules = append(rules, rule{family: f, chain: dnatChain, spec: fmt.Sprintf("-p %s %s -m multiport --dports %s %s-j %s",
				protocol, o.comment(), strings.Join(list, ","), conditions, o.chains()[0])})
		}
	}
	return rules
}

// hostPorts returns the host ports of a protocol, those that are in both families once.
func hostPorts(protocol string, maps []spec.PortMap) (list []string) {
	seen := map[spec.PortMap]bool{}
	for _, m := range maps {
		if side := hostSide(m); spec.ProtocolName(m.Protocol) == protocol && !seen[side] {
			seen[side] = true
			list = append(list, strconv.Itoa(int(m.HostPort)))
		}
	}
	return list
}

// hostSide is equal for port maps of the same port of the host.
func hostSide(m spec.PortMap) spec.PortMap {
	m.Container = netip.AddrPort{}
	return m
}

// portMapOf reads a port map from the rule of a container's chain that redirects to the container.
func portMapOf(r rule) (m spec.PortMap, ok bool) {
	if !PortMapping.isChain(r.chain) {
		return m, false
	}
	protocol, ok := spec.Protocol(r.option("-p"))
	port, errPort := strconv.ParseUint(r.option("--dport"), 10, 16)
	to, errTo := netip.ParseAddrPort(r.option("--to-destination"))
	host, errHost := netip.ParsePrefix(r.option("-d"))
	m = spec.PortMap{Protocol: protocol, HostPort: uint16(port), Container: to, HostIP: host.Addr()}
	return m, ok && errPort == nil && errTo == nil && (errHost == nil || r.option("-d") == "")
}

// evict returns those whose rules have to go for an ADD: its own attachment, and those that have one of its ports and are gone. Their
// address is that of the container which the port is to lead to, or their network namespace is known to be gone. A port of any other one is
// an error, and with keepOthers that of each other one.
func evict(owned []rule, tables []*table, adding owner, ports spec.PortNeeds, keepOthers bool) (leaving map[owner]bool, err error) {
	leaving = map[owner]bool{adding: true}
	for _, t := range tables {
		for _, r := range t.rules {
			other, ok := portMapOf(r)
			i := slices.IndexFunc(ports.Maps, func(m spec.PortMap) bool {
				return familyOf(m.Container.Addr()) == t.family && hostSide(m) == hostSide(other)
			})
			if !ok || i < 0 {
				continue
			}
			holder := publisher(owned, t, r, adding)
			if holder != adding && holder.key.ContainerID == adding.key.ContainerID {
				continue // runtimes ask for a container's ports on each of its networks; the first rule counts
			}
			if holder != adding && (keepOthers || other.Container.Addr() != ports.Maps[i].Container.Addr()) {
				is := presence.NewHost(presence.DefaultNotes).About(presence.Asked{Key: holder.key, Results: ports.Results})
				if !is.State.IsOver() || keepOthers {
					return nil, plugin.CodeErrorf(types.ErrTryAgainLater, is.Why+"; publish another port of the host, or stop that container (network/container/interface); "+
						"if it is gone, the network's GC frees the port", "host port %s is already published by %s", ports.Maps[i], holder.key)
				}
			}
			leaving[holder] = true
		}
	}
	return leaving, nil
}

// publisher returns whom a rule of a container's chain is for. The reference plugin does not say for which interface it is: it is taken to
// have the name that the one who asks has.
func publisher(owned []rule, t *table, r rule, asking owner) owner {
	for _, o := range owned {
		if o.owner.kind == PortMapping && o.id() == r.id() {
			return o.owner
		}
	}
	if slices.Contains(asking.chains(), r.chain) {
		return asking
	}
	for _, jump := range t.rules {
		if key, ok := namedBy(jump); ok && jump.target() == r.chain {
			key.IfName = asking.key.IfName
			return owner{PortMapping, key}
		}
	}
	return owner{PortMapping, plugin.Key{Network: "?", ContainerID: r.chain, IfName: "?"}}
}

// guard drops what comes from elsewhere for 127.0.0.0/8. Where route_localnet is off the kernel does so itself
// (ip-sysctl.rst); with it on, containers would reach what the host serves there for itself (CVE-2020-8558). It stays: the
// switch stays on as long as the link is there.
var guard = []string{"-d", "127.0.0.0/8", "!", "-i", "lo", "-m", "comment", "--comment", "cnibox: route_localnet", "-j", "DROP"}

const guardTable, guardChain = "raw", "PREROUTING"

func guardRule() rule {
	return rule{family: &ipv4, chain: guardChain, spec: `-d 127.0.0.0/8 ! -i lo -m comment --comment "cnibox: route_localnet" -j DROP`}
}

// allowLocalhost has the host reach ports behind a link by 127.0.0.1, when the guard is there.
func allowLocalhost(ctx context.Context, link string) error {
	add := func(p *iptables.IPTables) error { return p.AppendUnique(guardTable, guardChain, guard...) }
	err := within(ctx, ipv4.program, add)
	if saysNoNFTables(err) {
		err = within(ctx, ipv4.program+"-"+legacy, add)
	}
	if err != nil {
		return plugin.Errorf(`the kernel must have table raw of iptables (iptable_raw, or nf_tables); or set "snat" to false to do without`,
			"keep containers from 127.0.0.1 of the host: %w", err)
	}
	return sysctl.AllowLocalhost(link)
}

// checkLocalhost makes sure of both. The reference plugin's rules have no guard.
func (b *Backend) checkLocalhost(ctx context.Context, link string, isGuarded bool) error {
	if isGuarded {
		t, err := plainTable(&ipv4, guardTable)
		if err != nil {
			return err
		}
		lacking, err := b.lacking(ctx, t, []rule{guardRule()})
		if saysNoNFTables(err) {
			if t, err = flavouredTable(ctx, &ipv4, guardTable, legacy); err == nil {
				lacking, err = b.lacking(ctx, t, []rule{guardRule()})
			}
		}
		switch {
		case err != nil:
			return fmt.Errorf("look for the rule that keeps containers from 127.0.0.1 of the host: %w", err)
		case len(lacking) > 0:
			return plugin.Errorf("something removed it after ADD (a flush, a restart of a firewall?): `cnictl repair` makes it again",
				"iptables, table %s: the rule is missing that keeps containers from 127.0.0.1 of the host", guardTable)
		}
	}
	return sysctl.CheckLocalhost(link)
}
