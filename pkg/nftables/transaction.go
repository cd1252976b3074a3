package nftables

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// Transaction collects changes that the kernel makes all at once or not at all
// (a batch of nfnetlink).
type Transaction struct {
	messages []message
	sets     uint32 // sets created so far, for their ids
}

// Stage is what part of a transaction a message belongs to, which tells what its
// refusal means. What the numbers are for is up to who makes the transaction;
// 0 is none.
type Stage int

// message is one change.
type message struct {
	typ    uint16 // NFT_MSG_…
	flags  uint16
	family uint8
	op     string // for errors: "add element …"
	stage  Stage
	body   func(b *netlink.Batch)
}

func (tx *Transaction) add(typ, flags uint16, family uint8, s Stage, op string, body func(b *netlink.Batch)) {
	tx.messages = append(tx.messages, message{typ: typ, flags: flags, family: family, op: op, stage: s, body: body})
}

// Empty tells whether there is nothing to do.
func (tx *Transaction) Empty() bool { return len(tx.messages) == 0 }

// Failed returns the stage of the message that err is the refusal of, 0 for
// any other error.
func (tx *Transaction) Failed(err error) Stage {
	var e *netlink.Error
	if !errors.As(err, &e) || e.Index < 1 || e.Index > len(tx.messages) {
		return 0
	}
	return tx.messages[e.Index-1].stage // message 0 opens the batch
}

// CreateTable creates a table. One that is there is no error.
func (tx *Transaction) CreateTable(s Stage, t Table) {
	tx.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, t.Family, s, "create table "+t.String(), func(b *netlink.Batch) {
		b.String(unix.NFTA_TABLE_NAME, t.Name)
	})
}

// RemoveTable removes a table with all that is in it.
func (tx *Transaction) RemoveTable(s Stage, t Table) {
	tx.add(unix.NFT_MSG_DELTABLE, 0, t.Family, s, "remove table "+t.String(), func(b *netlink.Batch) {
		b.String(unix.NFTA_TABLE_NAME, t.Name)
	})
}

// Commit makes the changes.
func (c *Conn) Commit(tx *Transaction) error {
	return c.send(tx, unix.NFNL_MSG_BATCH_END, 0)
}

// CommitIf makes the changes if nothing in the namespace's nf_tables has
// changed since generation; the error is unix.ERESTART if it has.
func (c *Conn) CommitIf(tx *Transaction, generation uint32) error {
	return c.send(tx, unix.NFNL_MSG_BATCH_END, generation)
}

// Probe lets the kernel validate the changes. It drops those of a batch that
// has no end (nft --check does the same).
func (c *Conn) Probe(tx *Transaction) error { return c.send(tx, 0, 0) }

func (c *Conn) send(tx *Transaction, end uint16, generation uint32) error {
	if tx.Empty() {
		return nil
	}
	b := &netlink.Batch{}
	b.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, "open an nftables transaction")
	b.Header(header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)...)
	if generation != 0 {
		b.BE32(unix.NFNL_BATCH_GENID, generation)
	}
	b.End()
	for i, m := range tx.messages {
		flags := m.flags
		if i == len(tx.messages)-1 {
			flags |= unix.NLM_F_ACK
		}
		b.Begin(messageType(m.typ), flags, m.op)
		b.Header(header(m.family, 0)...)
		m.body(b)
		b.End()
	}
	if end != 0 {
		b.Begin(end, 0, "commit an nftables transaction")
		b.Header(header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)...)
		b.End()
	}
	return c.Do(b, nil)
}
