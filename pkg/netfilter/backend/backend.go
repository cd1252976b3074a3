// Package backend chooses between pkg/netfilter's backends, and cleans up in all of them.
//
// What an ADD makes is made by one: the one that is configured, else iptables if something on the host or in the configuration can't
// do without it, else nftables, else iptables. CHECK looks there, and if nothing is configured in the other one too: what an
// attachment has may be from before an upgrade. What a DEL or GC removes may have been made with another configuration, by an earlier
// version, or by the reference plugins; so it looks in all of them. Where nothing is, that is one message of nf_tables, a look for the
// file of iptables' owners, and one for tables of iptables-legacy.
package backend

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netfilter/conntrack"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/reference"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Use is something that attachments have the packet filter for: the same thing in each backend, and of the reference plugins. It comes
// with what one attachment needs, which matters to Add and Check.
type Use struct {
	table nftables.Table // of ours
	inNFT func(*nft.Conn) nft.Use

	inIPTables iptables.Kind
	wants      func(plugin.Key) iptables.Rules // nil for what nftables alone can do

	reference    reference.Use                    // empty if they have no nftables for it
	hasReference func(*nft.Conn, plugin.Key) bool // whether what they made will do for Check; nil if it won't

	ports  []spec.PortMap
	marked func(*nft.Conn) iptables.Marked // what iptables has to accept for nftables, which can't accept a packet for good; nil for nothing
}

// Masquerade makes packets from addresses leave with the host's own address unless they go to the address's own network or are
// multicast. It takes over an address that another attachment held before.
func Masquerade(addrs []netip.Prefix) Use {
	return Use{
		table:      nft.HostTable,
		inNFT:      func(c *nft.Conn) nft.Use { return c.Masquerade(addrs) },
		inIPTables: iptables.Masquerading,
		wants:      func(key plugin.Key) iptables.Rules { return iptables.Masquerade(key, addrs) },
		reference:  reference.Masquerade(),
	}
}

// PortMaps publishes ports of containers on the host. Add fails if another attachment has one of them, with an error that names it, or
// takes the port over if that one is gone. It also cuts connections without a connection's end, such as UDP's, that were made before
// and would go on to lead elsewhere; Del cuts those to the container. Of ports, Del and GC need Results alone.
func PortMaps(ports spec.PortMaps) Use {
	return Use{
		table:      nft.HostTable,
		inNFT:      func(c *nft.Conn) nft.Use { return c.PortMaps(ports) },
		inIPTables: iptables.PortMapping,
		wants:      func(key plugin.Key) iptables.Rules { return iptables.PortMaps(key, ports) },
		reference:  reference.PortMaps(ports.Results),
		ports:      ports.Maps,
	}
}

// Forward lets containers' packets be forwarded by a host that otherwise drops them, and keeps containers of different networks
// apart. What keeps them apart is in place before anything is let through.
//
// Del leaves the rules of iptables that accept what nftables marks: they are for all, and accept nothing else.
func Forward(f spec.Forward) Use {
	return Use{
		table:      nft.ForwardTable,
		inNFT:      func(c *nft.Conn) nft.Use { return c.Forward(f) },
		inIPTables: iptables.Forwarding,
		wants:      func(key plugin.Key) iptables.Rules { return iptables.Forward(key, f) },
		marked: func(c *nft.Conn) iptables.Marked {
			return iptables.Marked{Mark: nft.ForwardMark, Addrs: f.Addrs, AdminChain: f.AdminChain, Conn: c}
		},
	}
}

// SpoofCheck has packets dropped that the host's end of the attachment's veth gets from any other MAC address. It is nftables' alone,
// whatever is wished.
// Of its arguments Del needs none, and GC the directory of libcni's results.
func SpoofCheck(results, hostEnd string, mac [6]byte) Use {
	return Use{
		table:        nft.BridgeTable,
		inNFT:        func(c *nft.Conn) nft.Use { return c.SpoofCheck(hostEnd, mac) },
		reference:    reference.SpoofCheck(results),
		hasReference: reference.HasSpoofCheck,
	}
}

// Available reports whether the backend that is wished for, or the one that would stand in for it, can be used.
func (u Use) Available(w Wish) error {
	return u.with(w, func(c *nft.Conn) error { return u.inNFT(c).Available() }, (*iptables.Backend).Available)
}

// Add gives the attachment what it needs, in place of what it has.
func (u Use) Add(ctx context.Context, w Wish, key plugin.Key) error {
	err := u.with(w,
		func(c *nft.Conn) error {
			if err := u.inNFT(c).Add(ctx, key); err != nil || u.marked == nil {
				return err
			}
			return u.marked(c).Accept(ctx)
		},
		func(b *iptables.Backend) error { return b.Add(ctx, u.wants(key)) })
	if err != nil {
		return err
	}
	if err := conntrack.FlushPublished(ctx, u.ports); err != nil {
		return errors.Join(err, Del(context.WithoutCancel(ctx), key, nil, u))
	}
	return nil
}

// Check compares what is there with what Add makes. It tries the other backend too if nftables fails and nothing is said about it; the
// error is nftables'.
func (u Use) Check(ctx context.Context, w Wish, key plugin.Key) error {
	inIPTables := func(b *iptables.Backend) error { return b.Check(ctx, u.wants(key)) }
	return u.with(w, func(c *nft.Conn) error {
		err := u.inNFT(c).Check(key)
		if err == nil && u.marked != nil {
			err = u.marked(c).Check(ctx)
		}
		switch {
		case err != nil && u.hasReference != nil && u.hasReference(c, key):
			return nil
		case err != nil && u.wants != nil && w == (Wish{Key: w.Key}) && inIPTables(iptables.On(c)) == nil:
			return nil
		}
		return err
	}, inIPTables)
}

// Del takes back what the attachment has for some uses, at the price of one look at the host. It is found by the key alone, and what is
// not found is gone, and no error. hint is the addresses that a runtime says the attachment had, nil if it says nothing; they only
// matter for what the reference plugins made, which does not always tell whose it is.
func Del(ctx context.Context, key plugin.Key, hint []netip.Prefix, uses ...Use) error {
	return onEach(uses, func(h host, u Use) error {
		var published []spec.PortMap
		var errs []error
		took := func(ports []spec.PortMap, err error) {
			published, errs = append(published, ports...), append(errs, err)
		}
		if h.has(u.table) {
			took(u.inNFT(h.conn).Del(ctx, key))
		}
		if u.wants != nil {
			b := iptables.On(nil) // which asks nf_tables for nothing
			if h.has(u.inIPTables.Tables()...) {
				b = iptables.On(h.conn)
			}
			took(b.Del(ctx, u.inIPTables, key, hint))
		}
		if h.has(u.reference.Tables...) {
			took(nil, u.reference.Del(ctx, h.conn, key, hint))
		}
		return errors.Join(append(errs, conntrack.FlushWithdrawn(ctx, published))...)
	})
}

// GC removes what attachments of the network have for some uses and are not valid.
func GC(ctx context.Context, network string, valid []plugin.Key, uses ...Use) error {
	return onEach(uses, func(h host, u Use) error {
		var errs []error
		if h.has(u.table) {
			errs = append(errs, u.inNFT(h.conn).GC(ctx, network, valid))
		}
		if h.has(u.reference.Tables...) {
			errs = append(errs, u.reference.GC(ctx, h.conn, network, valid))
		}
		if u.wants != nil {
			r := &plugin.Request{Key: plugin.Key{Network: network}}
			for _, k := range valid {
				r.Valid = append(r.Valid, plugin.Attachment{ContainerID: k.ContainerID, IfName: k.IfName})
			}
			errs = append(errs, held.GC(ctx, r, iptables.On(h.conn).Store(u.inIPTables)))
		}
		return errors.Join(errs...)
	})
}

// tables are those of nf_tables in which there can be something to remove.
func (u Use) tables() []nftables.Table {
	list := append([]nftables.Table{u.table}, u.reference.Tables...)
	if u.wants != nil {
		list = append(list, u.inIPTables.Tables()...)
	}
	return list
}

// CheckConditions refuses conditions of ports, as far as that can be told before there are any ports.
func CheckConditions(w Wish, ports spec.PortMaps) error {
	if w.NFTables == "" {
		return nil
	}
	return nft.CheckConditions(ports)
}

// onHost does something with the packet filter of the calling thread's network namespace.
func onHost(do func(*nft.Conn) error) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}

// host is the packet filter for one call, which needs but one connection to it.
type host struct {
	conn  *nft.Conn
	there map[nftables.Table]bool
}

// onEach does something for each use. It asks first which of their tables are there, with one message for all of them. Nearly always it
// is our own at most, and then nobody need look into the others. A kernel without nftables has none.
func onEach(uses []Use, do func(host, Use) error) error {
	return onHost(func(conn *nft.Conn) error {
		var tables []nftables.Table
		for _, u := range uses {
			tables = append(tables, u.tables()...)
		}
		answers, err := conn.HasTables(tables...)
		if err != nil {
			return err
		}
		h := host{conn, map[nftables.Table]bool{}}
		for i, t := range tables {
			h.there[t] = answers[i]
		}
		var errs []error
		for _, u := range uses {
			errs = append(errs, do(h, u))
		}
		return errors.Join(errs...)
	})
}

// has reports whether one of the tables is there.
func (h host) has(tables ...nftables.Table) bool {
	return slices.ContainsFunc(tables, func(t nftables.Table) bool { return h.there[t] })
}
