package iptables

import (
	"errors"
	"net/netip"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
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
	nft    nftProbe // without a connection if there is nothing of iptables-nft
	shared bool     // the connection is for others to close
	legacy legacyProbe
}

// probes are the backend's, over the connection that it was given.
func (b *Backend) probes() (*probes, error) {
	if b.asked {
		return probesOver(b.conn), nil
	}
	return openProbes()
}

func probesOver(conn *nft.Conn) *probes {
	return &probes{nft: nftProbe{conn: conn}, shared: true}
}

func openProbes() (*probes, error) {
	conn, err := nft.Open()
	if errors.Is(err, netfilter.ErrUnavailable) {
		return &probes{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &probes{nft: nftProbe{conn: conn}}, nil
}

func (p *probes) close() {
	if p.nft.conn != nil && !p.shared {
		p.nft.conn.Close()
	}
}

// forget makes the next question be asked anew.
func (p *probes) forget() {
	p.nft = nftProbe{conn: p.nft.conn}
	p.legacy = legacyProbe{}
}

// ask asks nf_tables about chains of a table, with one message for each family:
// hasChain knows the answers then. iptables-legacy's are all read at once anyway.
func (p *probes) ask(in []family, table string, chains ...string) error {
	if p.nft.conn == nil {
		return nil
	}
	p.nft.asked, p.nft.there = nil, nil
	for _, f := range in {
		t := p.nft.table(f, table)
		there, err := p.nft.conn.HasChains(t, chains...)
		if err != nil {
			return err
		}
		for i, c := range chains {
			p.nft.asked, p.nft.there = append(p.nft.asked, tableChain{t, c}), append(p.nft.there, there[i])
		}
	}
	return nil
}

// hasTable tells whether a table may be there in either family and flavour. In
// nf_tables a chain is as fast to ask for as its table.
func (p *probes) hasTable(name string) (bool, error) {
	if p.nft.conn != nil {
		return true, nil
	}
	for _, f := range families() {
		if t, err := p.legacy.table(f, name); err != nil || t.isThere() {
			return true, err
		}
	}
	return false, nil
}

// of returns the probe of a flavour.
func (p *probes) of(fl flavour) probe {
	switch {
	case fl == legacy:
		return &p.legacy
	case p.nft.conn == nil:
		return nothing{}
	}
	return &p.nft
}

// nothing is the probe of what the kernel does not have.
type nothing struct{}

func (nothing) hasChain(family, string, string) (bool, error)             { return false, nil }
func (nothing) chains(family, string) ([]string, error)                   { return nil, nil }
func (nothing) mentions(family, string, string, netip.Addr) (bool, error) { return false, nil }
