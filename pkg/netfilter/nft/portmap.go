package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddPortMaps implements netfilter.PortMapper.
func (t *Table) AddPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	claims, err := portClaims(ports)
	if err != nil {
		return err
	}
	a := attachmentOf(key, usePortMap)
	if err := t.hold(ctx, a, claims); err != nil {
		return err
	}
	if !needsLocalhost(ports) {
		return nil
	}
	if err := netfilter.AllowLocalhost(ports.Inside); err != nil {
		_, undo := t.release(context.WithoutCancel(ctx), a)
		return errors.Join(err, undo)
	}
	return nil
}

// DelPortMaps implements netfilter.PortMapper.
func (t *Table) DelPortMaps(ctx context.Context, key plugin.Key, _ []netip.Prefix) ([]netfilter.PortMap, error) {
	claims, err := t.release(ctx, attachmentOf(key, usePortMap))
	if err != nil {
		return nil, err
	}
	var maps []netfilter.PortMap
	var parts []string
	for _, c := range claims {
		m := c.record.portMap()
		m.Container = parseTarget(c.data)
		maps = append(maps, m)
		if g := c.record.group(); !g.isPlain() && !slices.Contains(parts, g.id()) {
			parts = append(parts, g.id())
		}
	}
	if len(parts) == 0 {
		return maps, nil
	}
	return maps, t.collectParts(parts...)
}

// CheckPortMaps implements netfilter.PortMapper.
func (t *Table) CheckPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	claims, err := portClaims(ports)
	if err != nil {
		return err
	}
	if err := t.check(ctx, attachmentOf(key, usePortMap), claims); err != nil {
		return err
	}
	if needsLocalhost(ports) {
		if allowed, err := netfilter.LocalhostAllowed(ports.Inside); err != nil || !allowed {
			return plugin.Errorf(fmt.Sprintf("set it with `sysctl -w net.ipv4.conf.%s.route_localnet=1`, or restart the container", ports.Inside), "route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", ports.Inside)
		}
	}
	return t.checkRules(claims)
}

// GCPortMaps implements netfilter.PortMapper. It also removes the guards of links
// that are gone, and what only ports with conditions or marks of their own need
// when there are none left.
func (t *Table) GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	if err := t.collect(ctx, network, usePortMap, valid); err != nil {
		return err
	}
	return errors.Join(t.collectParts(), t.collectGuards())
}

// portClaims returns what an attachment is to hold for its ports.
func portClaims(ports netfilter.PortMaps) ([]claim, error) {
	if ports.SetMarkChain != "" {
		return nil, plugin.ConfigError(`use backend "iptables"`, "chain %s, which is to mark connections, is one of iptables", ports.SetMarkChain)
	}
	if ports.MarkBit < 0 || ports.MarkBit > 31 {
		return nil, plugin.ConfigError("use a bit from 0 to 31", "a packet's mark has no bit %d", ports.MarkBit)
	}
	options := record{kind: kindPort, bit: defaultBit, link: noLink}
	if ports.MasqAll {
		options.kind |= kindMasqAll
	}
	if link := ports.SNATLink(); link != "" {
		options.kind |= kindSNAT
		options.link = link
		if !ports.InsideShared {
			options.kind |= kindOwnLink
		}
	}
	if options.kind&(kindSNAT|kindMasqAll) != 0 {
		options.bit = uint8(ports.MarkBit)
	}
	conditions4, err4 := parseConditions("conditions for IPv4", ports.Conditions4, &ipv4)
	conditions6, err6 := parseConditions("conditions for IPv6", ports.Conditions6, &ipv6)
	if err := errors.Join(err4, err6); err != nil {
		return nil, err
	}
	claims := make([]claim, 0, len(ports.Maps))
	for _, m := range ports.Maps {
		c := claim{record: options, conditions: conditions4, data: target(m.Container)}
		if m.Container.Addr().Is6() {
			c.conditions = conditions6
		}
		c.record.conditions = c.conditions.id
		c.record.addr, c.record.proto, c.record.port = m.HostIP, m.Protocol, m.HostPort
		if !c.record.addr.IsValid() {
			c.record.addr = unspecified(m.Container.Addr())
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// target is the data of maps of ports: where a connection goes.
func target(container netip.AddrPort) []byte {
	return nftables.Join(nftables.Addr(container.Addr()), nftables.Port(container.Port()))
}

func parseTarget(data []byte) netip.AddrPort {
	const portLen = 4 // filled up to a register
	if len(data) < portLen {
		return netip.AddrPort{}
	}
	addr, _ := netip.AddrFromSlice(data[:len(data)-portLen])
	port := data[len(data)-portLen:]
	return netip.AddrPortFrom(addr, uint16(port[0])<<8|uint16(port[1]))
}

func unspecified(family netip.Addr) netip.Addr {
	if family.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// needsLocalhost tells whether ports are published on 127.0.0.1.
func needsLocalhost(ports netfilter.PortMaps) bool {
	return ports.SNATLink() != "" &&
		slices.ContainsFunc(ports.Maps, func(m netfilter.PortMap) bool { return m.Container.Addr().Is4() })
}
