package nft

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// PortMaps publishes ports of a container on the host. Add fails if another attachment has one of the ports, with an error that names
// it, or takes the port over if that one is gone.
func (c *Conn) PortMaps(ports netfilter.PortMaps) Use {
	t := c.host()
	t.results = ports.Results
	records := portRecords(ports)
	link, _ := localhostLink(records)
	return Use{
		table: t, name: usePortMap, kinds: []kind{kindPort}, records: records,
		before: func(ctx context.Context) error { return CheckConditions(ctx, ports) },
		after: func(ctx context.Context, o owner) error {
			if options := t.options(o, ports, records); len(options) > 0 {
				if err := runNFT(ctx, strings.Join(options, "\n")+"\n"); err != nil {
					return fmt.Errorf("publish ports on conditions: %w", err)
				}
			}
			if link == "" {
				return nil
			}
			return netfilter.AllowLocalhost(link) // the guard is there by now
		},
		also: func(o owner) error {
			options := t.options(o, ports, records)
			rules, err := t.rulesOf(o, records)
			switch {
			case err != nil:
				return err
			case len(rules) < len(options):
				return t.mismatch(": %s has %d of its own %d rules in chains %s", o.comment, len(rules), len(options), strings.Join(optionChains(), ", "))
			case link != "":
				return netfilter.CheckLocalhost(link)
			}
			return nil
		},
	}
}

const usePortMap = "portmap"

// portRecords returns what an attachment is to have for its ports.
func portRecords(ports netfilter.PortMaps) (records []record) {
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
	for _, m := range ports.Maps {
		f := familyOf(m.Container.Addr())
		r.conditions = hashOf(conditionsFor(f, ports))
		r.addr, r.proto, r.port, r.target = m.HostIP, m.Protocol, m.HostPort, m.Container
		if !r.addr.IsValid() {
			r.addr = netip.PrefixFrom(m.Container.Addr(), 0).Masked().Addr() // the unspecified one of the family
		}
		records = append(records, r)
	}
	return records
}

// parseTarget reads the data of maps of ports: where a connection goes.
func parseTarget(data []byte) netip.AddrPort {
	if len(data) < 4 {
		return netip.AddrPort{}
	}
	host, port := data[:len(data)-4], data[len(data)-4:] // which is filled up to a register
	addr, _ := netip.AddrFromSlice(host)
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port))
}

// localhostLink returns the link by which ports on 127.0.0.1 lead to the container, "" if there is none, and whether nobody else is
// behind it. All ports of an attachment have the same link.
func localhostLink(records []record) (link string, own bool) {
	for _, r := range records {
		if r.kind == kindPort && r.flags&flagSNAT != 0 && r.addr.Is4() {
			return r.link, r.flags&flagOwnLink != 0
		}
	}
	return "", false
}

// releaseGone releases what an owner of published ports has that is gone: a node that crashed never sent its DEL. The error is that the
// port is taken, by an owner that is not known to be gone.
func (t *table) releaseGone(comment, port string) (removed []element, err error) {
	known := "its whole name, and so whether it runs, can't be told from the table"
	if parts := strings.Split(comment, "/"); len(parts) == 3 && !strings.ContainsAny(comment, "~:") { // not shortened, no character replaced
		key := plugin.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}
		var gone bool
		if gone, known = results.Gone(t.results, key); gone {
			return t.release(ownerOf(key, usePortMap))
		}
	}
	return nil, plugin.Errorf(fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known), "host port %s is already published by %s", port, cmp.Or(comment, "something that left no name"))
}
