package backend

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/bridgefilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/nftables"
)

// host is the packet filter of the calling thread's network namespace, for one
// call. All that the call has to do with nf_tables goes over one connection: each
// more would be a socket, and the pages of a buffer.
type host struct {
	table   *nft.Table // ours; nil if the kernel has no netfilter over netlink
	lacking error      // which then says so

	others []nftables.Table // that look has asked for
	there  []bool           // which of them there are
}

func openHost() (*host, error) {
	table, err := nft.Open()
	if err != nil && !errors.Is(err, netfilter.ErrUnavailable) {
		return nil, err
	}
	return &host{table: table, lacking: err}, nil
}

// look opens the host to remove something from it, and asks which of some other
// tables are there, with one message for all of them. Nearly always none is, and
// then nobody need look into them. For a DEL by bridge and portmap that saves five
// sockets and eight messages, a third of the time that it is here (100 us).
func look(others ...[]nftables.Table) (*host, error) {
	h, err := openHost()
	if err != nil || h.table == nil {
		return h, err
	}
	h.others = slices.Concat(others...)
	h.there, err = h.table.Conn().HasTables(h.others...)
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *host) close() {
	if h.table != nil {
		h.table.Close()
	}
}

// hasAny tells whether one of the tables is there. look has asked for them.
func (h *host) hasAny(tables []nftables.Table) bool {
	for i, there := range h.there {
		if there && slices.Contains(tables, h.others[i]) {
			return true
		}
	}
	return false
}

// withTable does something with our table.
func (h *host) withTable(do func(*nft.Table) error) error {
	if h.table == nil {
		return h.lacking
	}
	return do(h.table)
}

// inNFTables is withTable for what removes things: nothing is in the kernel that
// it can't have.
func (h *host) inNFTables(do func(*nft.Table) error) error { return ignoreUnavailable(h.withTable(do)) }

// inReference does something if one of the reference plugins' tables is there.
func (h *host) inReference(tables []nftables.Table, do func() error) error {
	if !h.hasAny(tables) {
		return nil
	}
	return do()
}

// inBridgeFilter does something if there is anything in the bridges' filter.
func (h *host) inBridgeFilter(do func(*bridgefilter.Table) error) error {
	if !h.hasAny(bridgefilter.Tables()) {
		return nil
	}
	return ignoreUnavailable(do(bridgefilter.On(h.table.Conn())))
}

// iptables returns the backend, which asks nf_tables only if one of iptables-nft's
// tables is there.
func (h *host) iptables(tables []nftables.Table) *iptables.Backend {
	if !h.hasAny(tables) {
		return iptables.On(nil)
	}
	return iptables.On(h.table.Conn())
}

// hasLink tells whether the host has a link, by binding a socket to it, which
// takes 0.6 us. SIOCGIFINDEX would have the kernel run modprobe, twice, for a link
// that is not there (seen on Linux 6.1); netlink and procfs take locks.
func (h *host) hasLink(name string) bool {
	return h.table != nil && unix.BindToDevice(h.table.Conn().FD(), name) == nil
}
