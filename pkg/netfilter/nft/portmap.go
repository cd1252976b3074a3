package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var _ netfilter.PortMapper = (*Conn)(nil)

// AddPortMaps implements netfilter.PortMapper. The guard of 127.0.0.0/8 is in place
// before the sysctl is set that it is for.
func (c *Conn) AddPortMaps(ctx context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	claims, err := portClaims(ports)
	if err != nil {
		return err
	}
	t, o := c.host(), ownerOf(key, usePortMap)
	t.results = ports.Results
	options := t.options(o, ports, claims)
	if err := checkConditions(ctx, ports); err != nil {
		return err
	}
	published := false
	err = t.hold(ctx, o, claims, func() error {
		published = true
		if len(options) > 0 {
			if err := runNFT(ctx, strings.Join(options, "\n")+"\n"); err != nil {
				return fmt.Errorf("publish ports on conditions: %w", err)
			}
		}
		if !needsLocalhost(ports) {
			return nil
		}
		return netfilter.AllowLocalhost(ports.Inside)
	})
	if err != nil && published {
		_, _, undo := t.release(context.WithoutCancel(ctx), o)
		err = errors.Join(err, undo)
	}
	return err
}

// DelPortMaps implements netfilter.PortMapper. Connections of a protocol that has
// none of its own end may be cut when it returns: their ports are closed.
func (c *Conn) DelPortMaps(ctx context.Context, key plugin.Key, _ []netip.Prefix) ([]netfilter.PortMap, error) {
	claims, gone, err := c.host().release(ctx, ownerOf(key, usePortMap))
	var maps []netfilter.PortMap
	for _, c := range claims {
		m := c.record.portMap()
		m.Container = parseTarget(c.data)
		maps = append(maps, m)
	}
	if err == nil && slices.ContainsFunc(maps, func(m netfilter.PortMap) bool { return m.Protocol != unix.IPPROTO_TCP }) {
		err = gone()
	}
	return maps, err
}

// CheckPortMaps implements netfilter.PortMapper.
func (c *Conn) CheckPortMaps(_ context.Context, key plugin.Key, ports netfilter.PortMaps) error {
	claims, err := portClaims(ports)
	if err != nil {
		return err
	}
	t, o := c.host(), ownerOf(key, usePortMap)
	if err := t.check(o, claims); err != nil {
		return err
	}
	if needsLocalhost(ports) {
		if allowed, err := netfilter.LocalhostAllowed(ports.Inside); err != nil || !allowed {
			return plugin.Errorf(fmt.Sprintf("set it with `sysctl -w net.ipv4.conf.%s.route_localnet=1`, or restart the container", ports.Inside), "route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", ports.Inside)
		}
	}
	return t.checkOptions(o, t.options(o, ports, claims))
}

// GCPortMaps implements netfilter.PortMapper. It also removes the guards of links
// that are gone.
func (c *Conn) GCPortMaps(ctx context.Context, network string, valid []plugin.Key) error {
	t := c.host()
	return errors.Join(t.collect(ctx, network, usePortMap, valid), t.collectGuards(ctx))
}

// Available tries whether the kernel takes the table for masquerading and published
// ports, without leaving anything in it.
func (c *Conn) Available() error { return c.host().available() }

// portClaims returns what an attachment is to have for its ports.
func portClaims(ports netfilter.PortMaps) ([]claim, error) {
	if ports.SetMarkChain != "" {
		return nil, plugin.ConfigError(`use backend "iptables"`, "chain %s, which is to mark connections, is one of iptables", ports.SetMarkChain)
	}
	if ports.MarkBit < 0 || ports.MarkBit > 31 {
		return nil, plugin.ConfigError("use a bit from 0 to 31", "a packet's mark has no bit %d", ports.MarkBit)
	}
	r := record{kind: kindPort, bit: defaultBit, link: noLink}
	if ports.MasqAll {
		r.flags |= flagMasqAll
	}
	if link := ports.SNATLink(); link != "" {
		r.flags |= flagSNAT
		r.link = link
		if !ports.InsideShared {
			r.flags |= flagOwnLink
		}
	}
	if r.flags&(flagSNAT|flagMasqAll) != 0 {
		r.bit = uint8(ports.MarkBit)
	}
	claims := make([]claim, 0, len(ports.Maps))
	for _, m := range ports.Maps {
		f := familyOf(m.Container.Addr())
		r.conditions = hashOf(conditionsFor(f, ports))
		r.addr, r.proto, r.port = m.HostIP, m.Protocol, m.HostPort
		if !r.addr.IsValid() {
			r.addr = f.unspecified
		}
		claims = append(claims, claim{r, append(m.Container.Addr().AsSlice(), portKey(m.Container.Port())...)})
	}
	return claims, nil
}

// parseTarget reads the data of maps of ports: where a connection goes.
func parseTarget(data []byte) netip.AddrPort {
	const portLen = 4 // filled up to a register
	if len(data) < portLen {
		return netip.AddrPort{}
	}
	addr, _ := netip.AddrFromSlice(data[:len(data)-portLen])
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[len(data)-portLen:]))
}

// needsLocalhost reports whether ports are published on 127.0.0.1.
func needsLocalhost(ports netfilter.PortMaps) bool {
	return ports.SNATLink() != "" &&
		slices.ContainsFunc(ports.Maps, func(m netfilter.PortMap) bool { return m.Container.Addr().Is4() })
}

// forbidLocalhost undoes route_localnet of a link that nobody else is behind,
// before the guard for it goes.
func forbidLocalhost(records []record) error {
	done := map[string]bool{}
	for _, r := range records {
		if r.flags&flagOwnLink == 0 || !r.addr.Is4() || done[r.link] {
			continue
		}
		done[r.link] = true
		if err := netfilter.ForbidLocalhost(r.link); err != nil {
			return err
		}
	}
	return nil
}

// collectGuards removes guards of links that are gone. A link that comes again has
// route_localnet unset, and a guard is made before it is set.
func (t *table) collectGuards(ctx context.Context) error {
	there, err := t.conn.HasTables(t.table)
	if err != nil || !there[0] {
		return err
	}
	return t.change(ctx, "remove guards of links that are gone", func() error {
		elements, err := t.conn.GetSetElements(t.inside())
		if err != nil {
			return explain("list set "+t.inside().Name, err)
		}
		var gone []element
		for _, e := range elements {
			link := unix.ByteSliceToString(e.Key)
			if _, err := netfilter.LocalhostAllowed(link); errors.Is(err, unix.ENOENT) && e.Timeout == 0 {
				gone = append(gone, element{set: t.inside(), key: e.Key})
			}
		}
		t.remove(distinct(gone))
		return t.conn.commit("remove guards of links that are gone from table " + t.String())
	})
}

// leftBy returns what an owner of published ports has that is gone: a node that
// crashed never sent its DEL. The error is that the port is taken, by an owner that
// is not known to be gone.
func (t *table) leftBy(comment, port string) (removal, error) {
	key, ok := keyIn(comment)
	if !ok {
		return removal{}, portTaken(port, comment, "its whole name, and so whether it runs, can't be told from the table")
	}
	gone, known := netfilter.Gone(t.results, key)
	if !gone {
		return removal{}, portTaken(port, comment, known)
	}
	o := ownerOf(key, usePortMap)
	records, err := t.held(o)
	if err != nil {
		return removal{}, err
	}
	if err := forbidLocalhost(records); err != nil {
		return removal{}, err
	}
	return t.removalOf(o, records)
}

// keyIn returns the key that an element's comment stands for, unless it was
// shortened or has a character replaced.
func keyIn(comment string) (key plugin.Key, ok bool) {
	parts := strings.Split(comment, "/")
	if len(parts) != 3 || strings.ContainsAny(comment, "~:") {
		return key, false
	}
	return plugin.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, true
}

func portTaken(port, owner, known string) error {
	if owner == "" {
		owner, known = "something that left no name", "see what holds it with `nft list table inet "+TableName+"`"
	}
	return plugin.Errorf(fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known), "host port %s is already published by %s", port, owner)
}
