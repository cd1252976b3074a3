// Package nftables speaks to the kernel's nf_tables over netlink: transactions,
// chains and rules, sets and their elements. It knows what an nft user knows
// (linux/netfilter/nf_tables.h is its reference) and nothing of what the rules
// are for.
package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Table names a table.
type Table struct {
	Family uint8 // NFPROTO_INET and others
	Name   string
}

// String returns the table as nft's commands take it: "inet cnibox".
func (t Table) String() string { return familyName(t.Family) + " " + t.Name }

func familyName(f uint8) string {
	switch f {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	}
	return fmt.Sprintf("family %d", f)
}

// Tries is how often a change is worth to be attempted again because another
// process changed the same objects at the same time.
const Tries = 16

// ErrBusy says that something was given up because other processes kept
// changing the same objects.
var ErrBusy = errors.New("nf_tables changes all the time")

// Conn is a connection to the nf_tables of one network namespace. One goroutine
// at a time.
type Conn struct {
	*netlink.Conn
}

// Open opens a connection in the calling thread's namespace. The error is one
// that Lacking knows if the kernel has no netfilter at all.
func Open() (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// Close closes the socket. After something was removed the kernel makes the
// caller wait until it has freed that, some milliseconds.
func (c *Conn) Close() { c.Conn.Close() }

// Lacking tells whether the kernel refused a request because it has no
// nf_tables, or not that part of it. EINVAL is how it refuses messages for a
// subsystem of nfnetlink that it does not have.
func Lacking(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT)
}

// HasChain tells whether a chain is there. Without nf_tables it is not.
func (c *Conn) HasChain(t Table, chain string) (bool, error) {
	return c.has(t, unix.NFT_MSG_GETCHAIN, "look up chain "+chain, func(b *netlink.Batch) {
		b.String(unix.NFTA_CHAIN_TABLE, t.Name)
		b.String(unix.NFTA_CHAIN_NAME, chain)
	})
}

// Drops tells whether a base chain is there and drops what none of its rules has
// decided about.
func (c *Conn) Drops(t Table, chain string) (bool, error) {
	b := &netlink.Batch{}
	get(b, t.Family, unix.NFT_MSG_GETCHAIN, 0, "look up chain "+chain, func() {
		b.String(unix.NFTA_CHAIN_TABLE, t.Name)
		b.String(unix.NFTA_CHAIN_NAME, chain)
	})
	drops := false
	err := c.Do(b, func(m netlink.Message) {
		const nfDrop = 0 // NF_DROP of linux/netfilter.h
		policy := netlink.Attr(attributes(m), unix.NFTA_CHAIN_POLICY)
		drops = len(policy) == 4 && binary.BigEndian.Uint32(policy) == nfDrop
	})
	if errors.Is(err, unix.ENOENT) || err != nil && Lacking(err) {
		return false, nil
	}
	return drops, err
}

// HasTable tells whether a table is there. Without nf_tables it is not.
func (c *Conn) HasTable(t Table) (bool, error) {
	return c.has(t, unix.NFT_MSG_GETTABLE, "look up table "+t.String(), func(b *netlink.Batch) {
		b.String(unix.NFTA_TABLE_NAME, t.Name)
	})
}

// HasTables tells which of some tables are there, with one message. Without
// nf_tables none is.
func (c *Conn) HasTables(tables ...Table) ([]bool, error) {
	b := &netlink.Batch{}
	for _, t := range tables {
		get(b, t.Family, unix.NFT_MSG_GETTABLE, 0, "look up table "+t.String(), func() {
			b.String(unix.NFTA_TABLE_NAME, t.Name)
		})
	}
	return c.which(b, len(tables))
}

// ChainOf names a chain of a table.
type ChainOf struct {
	Table Table
	Chain string
}

// HasChains is HasTables for chains.
func (c *Conn) HasChains(chains ...ChainOf) ([]bool, error) {
	b := &netlink.Batch{}
	for _, o := range chains {
		get(b, o.Table.Family, unix.NFT_MSG_GETCHAIN, 0, "look up chain "+o.Chain, func() {
			b.String(unix.NFTA_CHAIN_TABLE, o.Table.Name)
			b.String(unix.NFTA_CHAIN_NAME, o.Chain)
		})
	}
	return c.which(b, len(chains))
}

// which tells which of a batch of questions, one for each object, were answered.
func (c *Conn) which(b *netlink.Batch, n int) ([]bool, error) {
	there := make([]bool, n)
	err := c.Do(b, func(m netlink.Message) { there[m.Index] = true })
	if err != nil && !notThere(err) && !Lacking(err) {
		return nil, err
	}
	return there, nil
}

func (c *Conn) has(t Table, typ uint16, op string, body func(*netlink.Batch)) (bool, error) {
	b := &netlink.Batch{}
	get(b, t.Family, typ, unix.NLM_F_ACK, op, func() { body(b) })
	err := c.Do(b, nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT), Lacking(err):
		return false, nil
	}
	return false, err
}

// Generation returns the number that counts the namespace's transactions.
func (c *Conn) Generation() (uint32, error) {
	var generation uint32
	b := &netlink.Batch{}
	get(b, unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, "read the generation of nf_tables", func() {})
	err := c.Do(b, func(m netlink.Message) {
		if v := netlink.Attr(attributes(m), unix.NFTA_GEN_ID); len(v) == 4 {
			generation = binary.BigEndian.Uint32(v)
		}
	})
	if err == nil && generation == 0 {
		err = errors.New("read the generation of nf_tables: the kernel did not tell it")
	}
	return generation, err
}

// dump asks for a list, again if it was interrupted by a change: each may see
// an object twice. A table that is not there has none.
func (c *Conn) dump(family uint8, typ uint16, op string, body func(*netlink.Batch), each func(netlink.Message)) error {
	for try := 1; ; try++ {
		b := &netlink.Batch{}
		get(b, family, typ, unix.NLM_F_DUMP, op, func() { body(b) })
		err := c.Do(b, each)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, netlink.ErrInterrupted):
			return err
		case try == Tries:
			return fmt.Errorf("%s: %w", op, ErrBusy)
		}
	}
}

// get appends a request outside of a transaction.
func get(b *netlink.Batch, family uint8, typ, flags uint16, op string, body func()) {
	b.Begin(messageType(typ), flags, op)
	b.Header(header(family, 0)...)
	body()
	b.End()
}

// attributes returns what stands behind an answer's header.
func attributes(m netlink.Message) []byte {
	const nfgenmsgLen = 4
	return m.Payload[min(nfgenmsgLen, len(m.Payload)):]
}

func messageType(nftMessage uint16) uint16 {
	return unix.NFNL_SUBSYS_NFTABLES<<8 | nftMessage
}

// header is struct nfgenmsg of linux/netfilter/nfnetlink.h.
func header(family byte, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
}
