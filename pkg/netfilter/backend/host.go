package backend

import (
	"errors"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// withNFT does something with nftables of the calling thread's network namespace.
func withNFT(do func(*nft.Conn) error) error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}

// onHost is withNFT for what goes on without nftables: then there is no connection.
func onHost(do func(*nft.Conn) error) error {
	opened := false
	err := withNFT(func(c *nft.Conn) error {
		opened = true
		return do(c)
	})
	if !opened && errors.Is(err, netfilter.ErrUnavailable) {
		return do(nil)
	}
	return err
}

// host is the packet filter for one call, which needs but one connection to it.
type host struct {
	conn  *nft.Conn
	there []nftables.Table // which of the uses' tables are there
}

// onEach does something for each use. It asks first which of their tables are there, with one message for all of them. Nearly always it
// is our own at most, and then nobody need look into the others. A kernel without nftables has none.
func onEach(uses []Use, do func(host, Use) error) error {
	return onHost(func(conn *nft.Conn) error {
		h := host{conn: conn}
		if conn != nil {
			if err := h.look(uses); err != nil {
				return err
			}
		}
		var errs []error
		for _, u := range uses {
			errs = append(errs, do(h, u))
		}
		return errors.Join(errs...)
	})
}

func (h *host) look(uses []Use) error {
	var tables []nftables.Table
	for _, u := range uses {
		tables = append(tables, u.tables()...)
	}
	there, err := h.conn.HasTables(tables...)
	for i, t := range tables {
		if err == nil && there[i] {
			h.there = append(h.there, t)
		}
	}
	return err
}

// has reports whether one of the tables is there.
func (h host) has(tables ...nftables.Table) bool {
	return slices.ContainsFunc(tables, func(t nftables.Table) bool { return slices.Contains(h.there, t) })
}
