package iptables

import (
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// Backend is the backend on iptables, in the network namespace of the thread
// that calls it. It keeps nothing between calls.
type Backend struct {
	asked bool      // whoever made it has asked nf_tables …
	conn  *nft.Conn // … over this; nil if iptables-nft has nothing there
}

// New returns the backend.
func New() *Backend { return &Backend{} }

// On returns the backend for what removes things, which asks nf_tables over a
// connection that the caller has. It is nil if the caller knows that none of the
// tables is there.
func On(conn *nft.Conn) *Backend { return &Backend{asked: true, conn: conn} }

// NATTables are the tables of iptables-nft in which masquerading and port maps are.
func NATTables() []nftables.Table { return tablesOf(natTable) }

// FilterTables are those in which what lets packets pass is.
func FilterTables() []nftables.Table { return tablesOf(filterTable) }

func tablesOf(name string) []nftables.Table {
	return []nftables.Table{{Family: nftables.TableFamilyIPv4, Name: name}, {Family: nftables.TableFamilyIPv6, Name: name}}
}

// Available tells whether the host has the program that changes rules. Whether
// the kernel has what they need is only seen by adding one.
func (*Backend) Available() error {
	_, err := plainProgram(ipv4, "restore")
	return err
}
