package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Event is something that nf_tables did with a packet.
type Event struct {
	Family, Table, Chain string
	Rule                 uint64 // its handle; 0: no rule, but the chain's policy
	Verdict              Verdict
	Target               string // the chain to which it went
	In, Out              int    // links
	Mark                 uint32
	Packet               Header

	id  uint32 // of the packet
	own bool   // our own table says so
}

// Verdict is what becomes of a packet.
type Verdict string

// The verdicts. They are those of the kernel.
const (
	Accept   Verdict = "accept"
	Drop     Verdict = "drop"
	Queue    Verdict = "queue" // to a program
	Stolen   Verdict = "stolen"
	Continue Verdict = "continue"
	Return   Verdict = "return"
	Jump     Verdict = "jump"
	Goto     Verdict = "goto"
)

// verdicts are by the kernel's numbers (NF_* and NFT_* in linux/netfilter.h and nf_tables.h).
var verdicts = map[int32]Verdict{0: Drop, 1: Accept, 2: Stolen, 3: Queue, -1: Continue, -2: Continue, -3: Jump, -4: Goto, -5: Return}

// Header is what a packet has in front.
type Header struct {
	From, To         netip.Addr
	Protocol         byte
	FromPort, ToPort uint16     // of a ping both are its identifier
	Flags            byte       // of TCP
	Type, Code       byte       // of ICMP
	About            netip.Addr // whose link address is asked for or told, by ARP or neighbour discovery
	Asks             bool
	MTU              uint16 // that a router tells of
}

// isCheckpoint reports whether it is the end of a chain of ours: the packet has come there.
func (e Event) isCheckpoint() bool { return e.own && e.Rule == 0 && e.Verdict == Accept }

// point is the hook of a checkpoint, and which of our chains it is. That of another family than inet has it in front.
func (e Event) point() (hook, which string) {
	hook, which, _ = strings.Cut(e.Chain, "-")
	if e.Family != "inet" {
		hook = e.Family + " " + hook
	}
	return hook, which
}

// drops reports whether somebody else ends the packet's way.
func (e Event) drops() bool { return !e.own && e.Verdict == Drop }

// String names the chain, and the rule.
func (e Event) String() string {
	in := fmt.Sprintf("chain %s of table %s %s", e.Chain, e.Family, e.Table)
	if e.Rule == 0 {
		return in
	}
	return fmt.Sprintf("rule %d in %s", e.Rule, in)
}

// parse reads a message of the kernel's.
func parse(m netlink.Message) (e Event, ok bool) {
	const header = 4
	if m.Header.Type != nftMessage(unix.NFT_MSG_TRACE) || len(m.Data) < header {
		return e, false
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return e, false
	}
	ad.ByteOrder = binary.BigEndian
	e.Family = familyNames[m.Data[0]]
	var link, network, transport []byte
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_TRACE_TABLE:
			e.Table = ad.String()
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = ad.String()
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Rule = ad.Uint64()
		case unix.NFTA_TRACE_ID:
			e.id = ad.Uint32()
		case unix.NFTA_TRACE_IIF:
			e.In = int(ad.Uint32())
		case unix.NFTA_TRACE_OIF:
			e.Out = int(ad.Uint32())
		case unix.NFTA_TRACE_MARK:
			e.Mark = ad.Uint32()
		case unix.NFTA_TRACE_POLICY:
			e.Verdict = verdicts[int32(ad.Uint32())]
		case unix.NFTA_TRACE_LL_HEADER:
			link = ad.Bytes()
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = ad.Bytes()
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = ad.Bytes()
		case unix.NFTA_TRACE_VERDICT:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					switch ad.Type() {
					case unix.NFTA_VERDICT_CODE:
						e.Verdict = verdictOf(int32(ad.Uint32()))
					case unix.NFTA_VERDICT_CHAIN:
						e.Target = ad.String()
					}
				}
				return nil
			})
		}
	}
	e.Packet = headerOf(e.Family, link, network, transport)
	return e, ad.Err() == nil && e.Family != ""
}

// verdictOf leaves out what the kernel has in the upper half of a verdict, such as the number of a queue.
func verdictOf(code int32) Verdict {
	if code < 0 {
		return verdicts[code]
	}
	return verdicts[code&0xff]
}

// headerOf reads the headers that the kernel sends with the first step of a chain.
func headerOf(family string, link, network, transport []byte) (h Header) {
	const etherType = 12
	isARP := family == "arp" || len(link) >= etherType+2 && binary.BigEndian.Uint16(link[etherType:]) == unix.ETH_P_ARP
	switch {
	case isARP && len(network) >= 28:
		h.Asks = network[7] == 1
		h.About = addr(network[24:28])
		if !h.Asks {
			h.About = addr(network[14:18])
		}
		h.From = addr(network[14:18])
		return h
	case len(network) >= 20 && network[0]>>4 == 4:
		h.Protocol, h.From, h.To = network[9], addr(network[12:16]), addr(network[16:20])
	case len(network) >= 40 && network[0]>>4 == 6:
		h.Protocol, h.From, h.To = network[6], addr(network[8:24]), addr(network[24:40])
	default:
		return h
	}
	h.readTransport(transport)
	return h
}

func (h *Header) readTransport(data []byte) {
	if len(data) < 8 {
		return
	}
	switch h.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		h.FromPort, h.ToPort = binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])
		if h.Protocol == unix.IPPROTO_TCP && len(data) >= 14 {
			h.Flags = data[13]
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		h.Type, h.Code = data[0], data[1]
		switch {
		case h.isDiscovery() && len(data) >= 20: // all that the kernel shows
			h.Asks = h.Type == solicitation
			h.About = h.discovered(data[8:20])
		case h.isPing():
			h.FromPort = binary.BigEndian.Uint16(data[4:])
			h.ToPort = h.FromPort
		default:
			h.MTU = binary.BigEndian.Uint16(data[6:])
		}
	}
}

func (h Header) isDiscovery() bool {
	return h.Protocol == unix.IPPROTO_ICMPV6 && (h.Type == solicitation || h.Type == advertisement)
}

// discovered is whose link address is asked for or told by IPv6. The last bytes of it are those of a question's destination.
func (h Header) discovered(first []byte) netip.Addr {
	switch {
	case !h.Asks:
		return h.From
	case !h.To.IsMulticast():
		return h.To
	}
	to := h.To.As16()
	return addr(append(bytes.Clone(first), 0, to[13], to[14], to[15]))
}

func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

const (
	flagSYN, flagRST, flagACK = 2, 4, 16

	echoRequest4, echoReply4, echoRequest6, echoReply6 = 8, 0, 128, 129

	solicitation, advertisement = 135, 136 // of neighbour discovery
)

func (h Header) isICMP() bool {
	return h.Protocol == unix.IPPROTO_ICMP || h.Protocol == unix.IPPROTO_ICMPV6
}

func (h Header) isPing() bool { return h.isEcho() || h.isReply() }

func (h Header) isEcho() bool {
	return h.Protocol == unix.IPPROTO_ICMP && h.Type == echoRequest4 || h.Protocol == unix.IPPROTO_ICMPV6 && h.Type == echoRequest6
}

func (h Header) isReply() bool {
	return h.Protocol == unix.IPPROTO_ICMP && h.Type == echoReply4 || h.Protocol == unix.IPPROTO_ICMPV6 && h.Type == echoReply6
}

// isError reports whether it says what became of another packet, and no discovery of neighbours.
func (h Header) isError() bool {
	return h.Protocol == unix.IPPROTO_ICMP && (h.Type == 3 || h.Type == 11 || h.Type == 12) || h.Protocol == unix.IPPROTO_ICMPV6 && h.Type >= 1 && h.Type <= 4
}

func (h Header) isReset() bool { return h.Protocol == unix.IPPROTO_TCP && h.Flags&flagRST != 0 }
