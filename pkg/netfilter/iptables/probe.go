package iptables

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// probe asks the kernel what is in the tables of one flavour, without a program
// and without making anything.
type probe interface {
	hasChain(f family, table, chain string) (bool, error)

	// chains lists at least those whose names begin with CNI-.
	chains(f family, table string) ([]string, error)

	// mentions tells whether a rule of the chain may have the address in it.
	mentions(f family, table, chain string, addr netip.Addr) (bool, error)
}

// probes are for one moment: they keep what they read.
type probes struct {
	conn   *nftables.Conn // nil if the kernel has no netfilter over netlink
	legacy legacyProbe
}

func openProbes() (*probes, error) {
	conn, err := nftables.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) || err != nil && nftables.Lacking(err) {
		return &probes{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &probes{conn: conn}, nil
}

func (p *probes) close() {
	if p.conn != nil {
		p.conn.Close()
	}
}

// forget makes the next question be asked anew.
func (p *probes) forget() { p.legacy = legacyProbe{} }

// of returns the probe of a flavour.
func (p *probes) of(fl flavour) probe {
	switch {
	case fl == legacy:
		return &p.legacy
	case p.conn == nil:
		return nothing{}
	}
	return nftProbe{p.conn}
}

// nothing is the probe of what the kernel does not have.
type nothing struct{}

func (nothing) hasChain(family, string, string) (bool, error)             { return false, nil }
func (nothing) chains(family, string) ([]string, error)                   { return nil, nil }
func (nothing) mentions(family, string, string, netip.Addr) (bool, error) { return false, nil }
