package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tracer has nf_tables tell which rules packets of some addresses meet, as "nft monitor trace" does. For that a rule has to mark them,
// in a table of its own, which the kernel removes with the socket that has made it, however this process ends.
type tracer struct{ table, events *netlink.Conn }

// tableOwned is a table's flag: it is its socket's (NFT_TABLE_F_OWNER in linux/netfilter/nf_tables.h, since Linux 5.12).
const tableOwned = 2

func startTracer(sources []netip.Addr) (*tracer, error) {
	table, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	events, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, errors.Join(err, table.Close())
	}
	t := &tracer{table, events}
	err = events.JoinGroup(unix.NFNLGRP_NFTRACE)
	if err == nil {
		err = t.mark(sources)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tracer) close() error { return errors.Join(t.table.Close(), t.events.Close()) }

// mark makes the table.
func (t *tracer) mark(sources []netip.Addr) error {
	const chain, hook, priority = "prerouting", 0, -350 // before what else there is
	name := fmt.Sprintf("cnictl-probe-%d", os.Getpid())
	batch := []netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, nil),
		message(nftMessage(unix.NFT_MSG_NEWTABLE), netlink.Create, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.NFTA_TABLE_NAME, name)
			ae.Uint32(unix.NFTA_TABLE_FLAGS, tableOwned)
		}),
		message(nftMessage(unix.NFT_MSG_NEWCHAIN), netlink.Create, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.NFTA_CHAIN_TABLE, name)
			ae.String(unix.NFTA_CHAIN_NAME, chain)
			ae.String(unix.NFTA_CHAIN_TYPE, "filter")
			ae.Nested(unix.NFTA_CHAIN_HOOK, func(ae *netlink.AttributeEncoder) error {
				ae.Uint32(unix.NFTA_HOOK_HOOKNUM, hook)
				ae.Int32(unix.NFTA_HOOK_PRIORITY, priority)
				return nil
			})
		}),
	}
	for _, source := range sources {
		batch = append(batch, message(nftMessage(unix.NFT_MSG_NEWRULE), netlink.Create|netlink.Append, func(ae *netlink.AttributeEncoder) {
			ae.String(unix.NFTA_RULE_TABLE, name)
			ae.String(unix.NFTA_RULE_CHAIN, chain)
			ae.Nested(unix.NFTA_RULE_EXPRESSIONS, func(ae *netlink.AttributeEncoder) error { return encodeMark(ae, source) })
		}))
	}
	batch = append(batch, message(unix.NFNL_MSG_BATCH_END, 0, nil))
	if _, err := t.table.SendMessages(batch); err != nil {
		return err
	}
	for range batch[1 : len(batch)-1] {
		if _, err := t.table.Receive(); err != nil { // the acknowledgement, or the error
			return err
		}
	}
	return nil
}

// encodeMark writes a rule: of packets from a source, tell what becomes of them.
func encodeMark(ae *netlink.AttributeEncoder, source netip.Addr) error {
	offset, bytes := uint32(12), source.AsSlice()
	if source.Is6() {
		offset = 8
	}
	for _, e := range []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(bytes))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: bytes},
		&expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1},
	} {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return err
		}
		ae.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, data)
	}
	return nil
}

func nftMessage(kind netlink.HeaderType) netlink.HeaderType {
	return unix.NFNL_SUBSYS_NFTABLES<<8 | kind
}

// message is one of nfnetlink. Those that begin and end a batch have no attributes.
func message(kind netlink.HeaderType, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) netlink.Message {
	if encode == nil {
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: []byte{0, 0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	encode(ae)
	attributes, err := ae.Encode()
	if err != nil {
		attributes = nil // which the kernel refuses
	}
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attributes...)}
}

// nfDrop is the verdict that drops a packet (NF_DROP in linux/netfilter.h).
const nfDrop = 0

// verdict is what dropped a packet.
type verdict struct {
	family, table, chain string
	rule                 uint64 // its handle; 0: no rule took the packet, and the chain's policy is to drop
}

// drop waits until the kernel says what dropped one of the packets.
func (t *tracer) drop(until time.Time) (v verdict, found bool) {
	if t.events.SetReadDeadline(until) != nil {
		return v, false
	}
	for {
		messages, err := t.events.Receive()
		if err != nil {
			return v, false
		}
		for _, m := range messages {
			if v, found = parseTrace(m); found {
				return v, true
			}
		}
	}
}

// parseTrace reads one step of a packet: it is found if the packet was dropped there.
func parseTrace(m netlink.Message) (v verdict, dropped bool) {
	const header = 4
	if m.Header.Type != nftMessage(unix.NFT_MSG_TRACE) || len(m.Data) < header {
		return v, false
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return v, false
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_TRACE_TABLE:
			v.table = ad.String()
		case unix.NFTA_TRACE_CHAIN:
			v.chain = ad.String()
		case unix.NFTA_TRACE_RULE_HANDLE:
			v.rule = ad.Uint64()
		case unix.NFTA_TRACE_POLICY:
			dropped = ad.Uint32() == nfDrop
		case unix.NFTA_TRACE_VERDICT:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == unix.NFTA_VERDICT_CODE && ad.Uint32() == nfDrop {
						dropped = true
					}
				}
				return nil
			})
		}
	}
	v.family = map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev"}[m.Data[0]]
	return v, dropped && ad.Err() == nil && v.family != ""
}
