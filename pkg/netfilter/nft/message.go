package nft

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// transaction collects changes that the kernel makes all at once or not at all
// (a batch of nfnetlink).
type transaction struct {
	messages []message
	sets     uint32 // sets created so far, for their ids
}

// message is one change.
type message struct {
	typ   uint16 // NFT_MSG_…
	flags uint16
	op    string // for errors: "add element …"
	stage stage
	body  func(b *netlink.Batch)
}

// stage is what part of a change a message belongs to, which tells what its
// refusal means.
type stage int

const (
	makeRuleset stage = iota + 1 // create the table and all that stays in it
	makeSubnet                   // create the set and the rule of a subnet
	removeElements
	addElements  // to sets of the ruleset
	addAddresses // to the set of a subnet
)

func (tx *transaction) add(typ, flags uint16, s stage, op string, body func(b *netlink.Batch)) {
	tx.messages = append(tx.messages, message{typ: typ, flags: flags, op: op, stage: s, body: body})
}

// failed returns the stage of the message that err is the refusal of, 0 for
// any other error.
func (tx *transaction) failed(err error) stage {
	var e *netlink.Error
	if !errors.As(err, &e) || e.Index < 1 || e.Index > len(tx.messages) {
		return 0
	}
	return tx.messages[e.Index-1].stage // message 0 opens the batch
}

// explain makes an error out of a refusal that is about the kernel rather than
// about what is in it.
func (tx *transaction) explain(err error) error {
	switch s := tx.failed(err); {
	case err == nil:
		return nil
	case s == 0 && lacking(err), s != 0 && errors.Is(err, unix.EOPNOTSUPP):
		return unavailable(err)
	case (s == makeRuleset || s == makeSubnet) && errors.Is(err, unix.ENOENT):
		return unavailable(err) // a kind of chain or expression that there is not
	}
	return err
}

// commit makes the changes.
func (t *Table) commit(tx *transaction) error {
	return t.send(tx, unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END, 0)
}

// commitIf makes the changes if nothing in the namespace's nf_tables has
// changed since generation; the error is unix.ERESTART if it has.
func (t *Table) commitIf(tx *transaction, generation uint32) error {
	return t.send(tx, unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END, generation)
}

// probe lets the kernel validate the changes. It drops those of a batch that
// has no end (nft --check does the same).
func (t *Table) probe(tx *transaction) error {
	return t.send(tx, unix.NFNL_MSG_BATCH_BEGIN, 0, 0)
}

func (t *Table) send(tx *transaction, begin, end uint16, generation uint32) error {
	if len(tx.messages) == 0 {
		return nil
	}
	b := &netlink.Batch{}
	b.Begin(begin, 0, "open an nftables transaction")
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
		b.Header(header(unix.NFPROTO_INET, 0)...)
		m.body(b)
		b.End()
	}
	if end != 0 {
		b.Begin(end, 0, "commit an nftables transaction")
		b.Header(header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)...)
		b.End()
	}
	return t.conn.Do(b, nil)
}

// get appends a request outside of a transaction.
func get(b *netlink.Batch, typ, flags uint16, op string, body func()) {
	b.Begin(messageType(typ), flags, op)
	b.Header(header(unix.NFPROTO_INET, 0)...)
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
