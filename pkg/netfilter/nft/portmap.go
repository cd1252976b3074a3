package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
)

// ToPublish publishes ports of a container on the host. Add fails if another attachment has one of the ports, with an error that names
// it, or takes the port over if that one is gone.
func ToPublish(ports spec.PortNeeds) Wants {
	return Wants{Purpose: Publishing, records: portRecords(ports), ports: ports}
}

// portRecords returns what an attachment is to have for its ports.
func portRecords(ports spec.PortNeeds) (records []record) {
	r := record{kind: kindPort, link: noLink}
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

// releaseGone releases what the owner of a published port has, or of an address with a list, if it is gone: a node that crashed never sent its
// DEL. The error is that it is taken, by an owner that is not known to be gone. dir is that of libcni's results.
func (t *table) releaseGone(e element, dir string) (removed []element, err error) {
	known := "its whole name, and so whether it runs, can't be told from the table"
	holder := owner{comment: e.there.Comment}
	if key := plugin.ParseKey(holder.keyText()); key.ContainerID != "" {
		is := presence.NewHost(presence.DefaultNotes).About(presence.Asked{Key: key, Results: dir})
		if known = is.Why; is.State.IsOver() {
			return t.release(ownerOf(key, e.record.kind.purpose()))
		}
	}
	if e.record.kind == kindJudged {
		return nil, plugin.CodeErrorf(types.ErrTryAgainLater, fmt.Sprintf("%s; stop one of the two containers (network/container/interface); "+
			"if it is gone, the network's GC frees the address", known),
			"what %s sends is already judged for %s", e.what, cmp.Or(holder.comment, "something that left no name"))
	}
	return nil, plugin.CodeErrorf(types.ErrTryAgainLater, fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known),
		"host port %s is already published by %s", e.what, cmp.Or(holder.comment, "something that left no name"))
}
