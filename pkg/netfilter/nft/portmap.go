package nft

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// AddPortMaps implements netfilter.PortMapper.
func (t *Table) AddPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	a := attachmentOf(key, usePortMap)
	if err := t.hold(ctx, a, portClaims(ports)); err != nil {
		return err
	}
	if !needsLocalhost(ports) {
		return nil
	}
	err := netfilter.AllowLocalhost(ports.Inside)
	if err != nil {
		return errors.Join(err, t.release(context.WithoutCancel(ctx), a))
	}
	return nil
}

// DelPortMaps implements netfilter.PortMapper.
func (t *Table) DelPortMaps(ctx context.Context, key plugin.Key, _ []netip.Prefix) error {
	return t.release(ctx, attachmentOf(key, usePortMap))
}

// CheckPortMaps implements netfilter.PortMapper.
func (t *Table) CheckPortMaps(_ context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	claims := portClaims(ports)
	if err := t.check(attachmentOf(key, usePortMap), claims); err != nil {
		return err
	}
	if needsLocalhost(ports) {
		if allowed, err := netfilter.LocalhostAllowed(ports.Inside); err != nil || !allowed {
			return plugin.Errorf("route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", ports.Inside).
				WithDetails("set it with `sysctl -w net.ipv4.conf.%s.route_localnet=1`, or restart the container", ports.Inside)
		}
	}
	return t.checkRules(claims)
}

// GCPortMaps implements netfilter.PortMapper. It also removes the guards of links
// that are gone.
func (t *Table) GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	if err := t.collect(ctx, network, usePortMap, valid); err != nil {
		return err
	}
	return t.collectGuards()
}

func portClaims(ports netfilter.PortMaps) []claim {
	options := record{kind: kindPort, link: noLink}
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
	claims := make([]claim, 0, len(ports.Maps))
	for _, m := range ports.Maps {
		r := options
		r.addr, r.proto, r.port = m.HostIP, m.Protocol, m.HostPort
		if !r.addr.IsValid() {
			r.addr = unspecified(m.Container.Addr())
		}
		target := nftables.Join(nftables.Addr(m.Container.Addr()), nftables.Port(m.Container.Port()))
		claims = append(claims, claim{record: r, data: target})
	}
	return claims
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
