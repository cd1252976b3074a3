package iptables

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/nftables"
)

// nftProbe looks into the tables of iptables-nft, which are tables of nftables.
type nftProbe struct {
	conn *nftables.Conn

	asked []nftables.ChainOf // by probes.ask
	there []bool             // which of them there are
}

func (p *nftProbe) table(f family, name string) nftables.Table {
	if f == ipv6 {
		return nftables.Table{Family: unix.NFPROTO_IPV6, Name: name}
	}
	return nftables.Table{Family: unix.NFPROTO_IPV4, Name: name}
}

func (p *nftProbe) hasChain(f family, table, chain string) (bool, error) {
	t := p.table(f, table)
	if i := slices.Index(p.asked, nftables.ChainOf{Table: t, Chain: chain}); i >= 0 {
		return p.there[i], nil
	}
	return p.conn.HasChain(t, chain)
}

func (p *nftProbe) chains(f family, table string) ([]string, error) {
	return p.conn.Chains(p.table(f, table), "CNI-")
}

// mentions lists the rules of one chain. An address is compared with in its own
// bytes; an interrupted list may have left out a rule.
func (p *nftProbe) mentions(f family, table, chain string, addr netip.Addr) (bool, error) {
	t := p.table(f, table)
	b := &netlink.Batch{}
	b.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, "list the rules of chain "+chain)
	b.Header(t.Family, unix.NFNETLINK_V0, 0, 0)
	b.String(unix.NFTA_RULE_TABLE, t.Name)
	b.String(unix.NFTA_RULE_CHAIN, chain)
	b.End()
	found := false
	err := p.conn.Do(b, func(m netlink.Message) { found = found || bytes.Contains(m.Payload, addr.AsSlice()) })
	switch {
	case errors.Is(err, netlink.ErrInterrupted):
		return true, nil
	case errors.Is(err, unix.ENOENT), err != nil && nftables.Lacking(err):
		return false, nil
	}
	return found, err
}
