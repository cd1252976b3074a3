package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// host is the packet filter of the calling thread's network namespace, for one
// call, which needs but one connection to it.
type host struct {
	conn    *nft.Conn // nil if the kernel has no netfilter over netlink
	lacking error     // which then says so

	others []nftables.Table // that look has asked for
	there  []bool           // which of them there are
}

func openHost() (*host, error) {
	conn, err := nft.Open()
	if err != nil && !errors.Is(err, netfilter.ErrUnavailable) {
		return nil, err
	}
	return &host{conn: conn, lacking: err}, nil
}

// look opens the host to remove something from it, and asks which of some other
// tables are there, with one message for all of them. Nearly always none is, and
// then nobody need look into them.
func look(others ...[]nftables.Table) (*host, error) {
	h, err := openHost()
	if err != nil || h.conn == nil {
		return h, err
	}
	h.others = slices.Concat(others...)
	h.there, err = h.conn.HasTables(h.others...)
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *host) close() {
	if h.conn != nil {
		h.conn.Close()
	}
}

// hasAny reports whether one of the tables is there. look has asked for them.
func (h *host) hasAny(tables []nftables.Table) bool {
	for i, there := range h.there {
		if there && slices.Contains(tables, h.others[i]) {
			return true
		}
	}
	return false
}

// withNFT does something with nftables.
func (h *host) withNFT(do func(*nft.Conn) error) error {
	if h.conn == nil {
		return h.lacking
	}
	return do(h.conn)
}

// inNFT is withNFT for what removes things: nothing is in the kernel that it can't
// have.
func (h *host) inNFT(do func(*nft.Conn) error) error { return ignoreUnavailable(h.withNFT(do)) }

// inReference does something if one of the reference plugins' tables is there.
func (h *host) inReference(tables []nftables.Table, do func(*nft.Conn) error) error {
	if !h.hasAny(tables) {
		return nil
	}
	return do(h.conn)
}

// iptables returns the backend for a use, which asks nf_tables only if one of iptables-nft's tables is there.
func (h *host) iptables(u iptables.Use) *iptables.Backend {
	if !h.hasAny(u.Tables()) {
		return iptables.On(nil)
	}
	return iptables.On(h.conn)
}

func (h *host) delIPTables(ctx context.Context, u iptables.Use, key plugin.Key, hint []netip.Prefix) error {
	_, err := h.iptables(u).Del(ctx, u, key, hint)
	return err
}

// hasLink reports whether the host has a link, by binding a socket to it.
// SIOCGIFINDEX would have the kernel run modprobe for a link that is not there.
func hasLink(name string) (bool, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("look for link %s: %w", name, err)
	}
	defer unix.Close(socket)
	err = unix.BindToDevice(socket, name)
	if err != nil && err != unix.ENODEV {
		return false, fmt.Errorf("look for link %s: %w", name, err)
	}
	return err == nil, nil
}
