package backend

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// host is the packet filter of the calling thread's network namespace, for one call, which needs but one connection to it.
type host struct {
	conn    *nft.Conn        // nil if the kernel has no netfilter over netlink
	lacking error            // which then says so
	there   []nftables.Table // which of the tables that onHost asked for are there
}

// onHost does something on the host. It asks first which of some tables are there, with one message for all of them. Nearly always none
// is, and then nobody need look into them.
func onHost(do func(*host) error, tables ...[]nftables.Table) error {
	conn, err := nft.Open()
	if err != nil && !errors.Is(err, netfilter.ErrUnavailable) {
		return err
	}
	h := &host{conn: conn, lacking: err}
	if conn == nil {
		return do(h)
	}
	defer conn.Close()
	if asked := slices.Concat(tables...); len(asked) > 0 {
		there, err := conn.HasTables(asked...)
		if err != nil {
			return err
		}
		for i, t := range asked {
			if there[i] {
				h.there = append(h.there, t)
			}
		}
	}
	return do(h)
}

// hasAny reports whether one of the tables is there.
func (h *host) hasAny(tables []nftables.Table) bool {
	return slices.ContainsFunc(tables, func(t nftables.Table) bool { return slices.Contains(h.there, t) })
}

// withNFT does something with nftables.
func (h *host) withNFT(do func(*nft.Conn) error) error {
	if h.conn == nil {
		return h.lacking
	}
	return do(h.conn)
}

func withNFT(do func(*nft.Conn) error) error {
	return onHost(func(h *host) error { return h.withNFT(do) })
}

// inNFT is withNFT for what removes things: nothing is in the kernel that it can't have.
func (h *host) inNFT(do func(*nft.Conn) error) error { return ignoreUnavailable(h.withNFT(do)) }

// ifThere is inNFT if one of the tables is there.
func (h *host) ifThere(tables []nftables.Table, do func(*nft.Conn) error) error {
	if !h.hasAny(tables) {
		return nil
	}
	return h.inNFT(do)
}

// del removes what the attachment has for a use from both backends, and returns the published ports among it. iptables asks nf_tables only
// if one of iptables-nft's tables is there.
func (h *host) del(ctx context.Context, key plugin.Key, hint []netip.Prefix, inNFT func(*nft.Conn) nft.Use, u iptables.Use) ([]netfilter.PortMap, error) {
	var ports []netfilter.PortMap
	errNFT := h.inNFT(func(c *nft.Conn) (err error) {
		ports, err = inNFT(c).Del(ctx, key)
		return err
	})
	b := iptables.On(nil)
	if h.hasAny(u.Tables()) {
		b = iptables.On(h.conn)
	}
	more, err := b.Del(ctx, u, key, hint)
	return append(ports, more...), errors.Join(errNFT, err)
}

// gc removes what attachments of the network have for a use and are not valid, from both backends and what the reference plugins made.
func (h *host) gc(ctx context.Context, network string, valid []plugin.Key, inNFT func(*nft.Conn) nft.Use, u iptables.Use, inReference func(*nft.Conn) error) error {
	return errors.Join(
		h.inNFT(func(c *nft.Conn) error { return inNFT(c).GC(ctx, network, valid) }),
		h.inNFT(inReference),
		iptables.On(h.conn).GC(ctx, u, network, valid))
}

func ignoreUnavailable(err error) error {
	if errors.Is(err, netfilter.ErrUnavailable) {
		return nil
	}
	return err
}
