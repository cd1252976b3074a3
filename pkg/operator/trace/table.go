package trace

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// tableOwned is a table's flag: it is its socket's, and the kernel removes it with that (NFT_TABLE_F_OWNER, since Linux 5.12).
	tableOwned = 2

	// Attributes of linux/netfilter/nf_tables.h that package unix does not have.
	hookDevices, deviceName = 4, 1
)

// The chains of our tables are the first and the last at their hooks: between the two a packet is in the hands of others.
const (
	begin, tracked, end = "begin", "tracked", "end"

	first, last   = math.MinInt32 + 1, math.MaxInt32 // br_netfilter has the very first: packets are lost behind a chain in front of it
	behindTracker = -199                             // of connections, which is at -200
)

// chain is a chain of our tables.
type chain struct {
	family   byte
	hook     uint32
	priority int32
	name     string   // the hook's and begin, tracked or end
	devices  []string // of family netdev
	rules    []condition
	isJump   bool // it is at no hook
}

// bridgeFamily is the family of tables in which packets are that a bridge hands on.
const bridgeFamily = "bridge"

// hooks of the families, by the names that nft has for them.
var (
	hooksInet   = []string{"prerouting", "input", "forward", "output", "postrouting"} // bridge has the same
	familyNames = map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: bridgeFamily, unix.NFPROTO_NETDEV: "netdev"}
)

// Marks say which packets are followed, and at which links they come in.
type Marks struct {
	table string // what our tables are called
	Flow  Flow
	Next  []netip.Addr // whose link addresses are asked for
	Links []string
	Keep  []netip.Addr // what is of the flow and for these addresses leaves the node by no link
	Out   []string     // the flow's packets do not leave by these links, whoever they are for
	Stay  bool         // nor do they leave by others, and no program of the node gets them
	Door  string       // the link by which answers would come to who has not sent what is asked; "": he has
	State bool         // look what the tracking of connections says
}

// chainsOf returns our chains of a family.
func (m Marks) chainsOf(family byte) (list []chain) {
	mark := m.marking(m.Flow.isOf())
	switch family {
	case unix.NFPROTO_NETDEV:
		for _, a := range m.Next {
			mark = append(mark, m.marking(asksFor(a))...)
		}
		return []chain{
			{family: family, hook: 0, priority: first, name: "ingress-" + begin, devices: m.Links, rules: mark},
			{family: family, hook: 0, priority: last, name: "ingress-" + end, devices: m.Links},
		}
	case unix.NFPROTO_ARP:
		for _, a := range m.Next {
			list = append(list, chain{family: family, hook: 1, priority: first, name: "output-" + begin, rules: m.marking(asksFor(a))})
		}
		return list[:min(len(list), 1)]
	}
	for i, hook := range hooksInet {
		list = append(list,
			chain{family: family, hook: uint32(i), priority: first, name: hook + "-" + begin, rules: mark},
			chain{family: family, hook: uint32(i), priority: last, name: hook + "-" + end})
	}
	if family == unix.NFPROTO_INET {
		list = append(list, m.stateChains()...)
		list[len(hooksInet)*2-1].rules = m.keeping()
		if m.Stay {
			stay := append(m.keeping(), append(m.Flow.isTracked(), &expr.Verdict{Kind: expr.VerdictDrop}))
			list[3].rules, list[len(hooksInet)*2-1].rules = stay, stay // at the ends of hooks input and postrouting
		}
	}
	return list
}

// stateChains are entered by packets that the tracking of connections lets alone, or can make nothing of: that a packet enters one is seen.
func (m Marks) stateChains() (list []chain) {
	if !m.State {
		return nil
	}
	var rules []condition
	if c := m.Flow.isTracked(); c != nil {
		rules = m.marking([]condition{c})
	}
	for _, s := range []struct {
		name string
		bit  uint32
	}{{"untracked", expr.CtStateBitUNTRACKED}, {"invalid", expr.CtStateBitINVALID}} {
		list = append(list, chain{family: unix.NFPROTO_INET, name: s.name, isJump: true})
		rules = append(rules, condition{
			&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, s.bit), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: s.name},
		})
	}
	const prerouting, output = 0, 3
	return append(list,
		chain{family: unix.NFPROTO_INET, hook: prerouting, priority: behindTracker, name: "prerouting-" + tracked, rules: rules},
		chain{family: unix.NFPROTO_INET, hook: output, priority: behindTracker, name: "output-" + tracked, rules: rules})
}

// marking are the rules that have the kernel say what becomes of packets.
func (m Marks) marking(of []condition) (rules []condition) {
	for _, c := range of {
		rules = append(rules, append(slices.Clone(c), &expr.Immediate{Register: 1, Data: []byte{1}}, &expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1}))
	}
	return rules
}

// keeping are the rules that let the flow's packets not leave the node.
func (m Marks) keeping() (rules []condition) {
	drop := condition{&expr.Verdict{Kind: expr.VerdictDrop}}
	for _, c := range m.Flow.isOf() {
		for _, a := range m.Keep {
			rules = append(rules, slices.Concat(m.Flow.address(false, a), c, drop))
		}
		for _, name := range m.Out {
			data := make([]byte, unix.IFNAMSIZ)
			copy(data, name)
			rules = append(rules, slices.Concat(condition{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, equals(data)}, c, drop))
		}
	}
	return rules
}

// ownTables is how the names of all tables like ours begin.
const ownTables = "cnictl-trace-"

// lastDoor is a chain at the link itself: a reset by which a rule answers to what came over a bridge passes no other.
func (m Marks) lastDoor() []chain {
	if m.Door == "" {
		return nil
	}
	const egress = 1
	return []chain{{family: unix.NFPROTO_NETDEV, hook: egress, priority: first, name: "egress-" + begin, devices: []string{m.Door}, rules: m.keeping()}}
}

// newTableName names the tables of one trace, of which several may be under way.
func newTableName() string {
	return fmt.Sprintf("%s%d-%s", ownTables, os.Getpid(), strings.ToLower(rand.Text()[:6]))
}

// makeTable makes our table of a family. It goes when the connection is closed, or this process ends.
func makeTable(conn *netlink.Conn, name string, family byte, chains []chain) error {
	batch := []netlink.Message{batchMessage(unix.NFNL_MSG_BATCH_BEGIN), message(family, unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_TABLE_NAME, name)
		ae.Uint32(unix.NFTA_TABLE_FLAGS, tableOwned)
	})}
	for _, c := range chains {
		batch = append(batch, message(family, unix.NFT_MSG_NEWCHAIN, netlink.Create, func(ae *netlink.AttributeEncoder) { c.encode(ae, name) }))
	}
	for _, c := range chains {
		for _, r := range c.rules {
			batch = append(batch, message(family, unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(ae *netlink.AttributeEncoder) {
				ae.String(unix.NFTA_RULE_TABLE, name)
				ae.String(unix.NFTA_RULE_CHAIN, c.name)
				ae.Nested(unix.NFTA_RULE_EXPRESSIONS, func(ae *netlink.AttributeEncoder) error { return encode(ae, family, r) })
			}))
		}
	}
	return send(conn, append(batch, batchMessage(unix.NFNL_MSG_BATCH_END)))
}

func send(conn *netlink.Conn, batch []netlink.Message) error {
	if _, err := conn.SendMessages(batch); err != nil {
		return err
	}
	for range batch[1 : len(batch)-1] {
		if _, err := conn.Receive(); err != nil { // the acknowledgement, or the error
			return err
		}
	}
	return nil
}

func (c chain) encode(ae *netlink.AttributeEncoder, table string) {
	ae.String(unix.NFTA_CHAIN_TABLE, table)
	ae.String(unix.NFTA_CHAIN_NAME, c.name)
	if c.isJump {
		return
	}
	ae.String(unix.NFTA_CHAIN_TYPE, "filter")
	ae.Nested(unix.NFTA_CHAIN_HOOK, func(ae *netlink.AttributeEncoder) error {
		ae.Uint32(unix.NFTA_HOOK_HOOKNUM, c.hook)
		ae.Int32(unix.NFTA_HOOK_PRIORITY, c.priority)
		if c.devices != nil {
			ae.Nested(hookDevices, func(ae *netlink.AttributeEncoder) error {
				for _, d := range c.devices {
					ae.String(deviceName, d)
				}
				return nil
			})
		}
		return nil
	})
}

func encode(ae *netlink.AttributeEncoder, family byte, rule condition) error {
	for _, e := range rule {
		data, err := expr.Marshal(family, e)
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

// batchMessage begins or ends a transaction.
func batchMessage(kind netlink.HeaderType) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: []byte{0, 0, 0, unix.NFNL_SUBSYS_NFTABLES}}
}

func message(family byte, kind netlink.HeaderType, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) netlink.Message {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	encode(ae)
	attributes, err := ae.Encode()
	if err != nil {
		attributes = nil // which the kernel refuses
	}
	return netlink.Message{Header: netlink.Header{Type: nftMessage(kind), Flags: netlink.Request | netlink.Acknowledge | flags}, Data: append([]byte{family, 0, 0, 0}, attributes...)}
}
