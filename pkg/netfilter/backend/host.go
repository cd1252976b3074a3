package backend

import (
	"errors"
	"slices"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

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
