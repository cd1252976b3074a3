package watch

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Where messages of rtnetlink have what linkFilter looks at, behind the header of netlink.
const (
	messageKind = 4
	messageFrom = 12
	body        = unix.NLMSG_HDRLEN

	linkFlags, linkChange    = body + 8, body + 12
	addrFamily, addrScope    = body, body + 3
	routeProtocol, routeType = body + 5, body + 7
	qdiscHandle              = body + 8
	netconfValue             = body + sizeofNetconfmsg + unix.NLA_HDRLEN
)

var (
	accept = bpf.RetConstant{Val: 1<<32 - 1}
	refuse = bpf.RetConstant{Val: 0}
)

// linkFilter has the kernel keep back what is nothing to us: of the events of an ADD nearly all, of those of a DEL most. Events that it lets
// pass are read with care all the same. protocols are the marks of routes that plugins make.
func linkFilter(protocols ...int) []bpf.Instruction {
	var own []bpf.Instruction
	for _, protocol := range protocols {
		own = append(own, need(bpf.JumpNotEqual, uint32(protocol)), accept)
	}
	return slices.Concat(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: messageKind, Size: 2}},
		kinds(accept, unix.RTM_DELLINK, unix.RTM_DELRULE, unix.RTM_DELTFILTER, unix.RTM_DELNSID),
		ofKind(unix.RTM_NEWLINK, // set down, and not new
			bpf.LoadAbsolute{Off: linkChange, Size: 4},
			need(bpf.JumpNotEqual, ^uint32(0)), refuse,
			need(bpf.JumpBitsSet, big(unix.IFF_UP)), refuse,
			bpf.LoadAbsolute{Off: linkFlags, Size: 4},
			need(bpf.JumpBitsNotSet, big(unix.IFF_UP)), refuse,
			accept),
		ofKind(unix.RTM_DELADDR, // not the kernel's own ones of IPv6
			bpf.LoadAbsolute{Off: addrFamily, Size: 1},
			need(bpf.JumpEqual, unix.AF_INET6), accept,
			bpf.LoadAbsolute{Off: addrScope, Size: 1},
			need(bpf.JumpNotEqual, unix.RT_SCOPE_LINK), refuse,
			accept),
		ofKind(unix.RTM_DELROUTE, slices.Concat( // of plugins and of people: neither a routing daemon's, nor what the kernel itself cleans up
			[]bpf.Instruction{
				bpf.LoadAbsolute{Off: routeType, Size: 1},
				need(bpf.JumpEqual, unix.RTN_UNICAST), refuse,
				bpf.LoadAbsolute{Off: messageFrom, Size: 4},
				bpf.StoreScratch{Src: bpf.RegA},
				bpf.LoadAbsolute{Off: routeProtocol, Size: 1},
			},
			own,
			[]bpf.Instruction{
				need(bpf.JumpLessOrEqual, unix.RTPROT_STATIC), refuse,
				need(bpf.JumpEqual, unix.RTPROT_KERNEL), accept,
				bpf.LoadScratch{Dst: bpf.RegA},
				need(bpf.JumpNotEqual, 0), refuse,
				accept,
			})...),
		ofKind(unix.RTM_DELQDISC, // not those that links have of themselves
			bpf.LoadAbsolute{Off: qdiscHandle, Size: 4},
			need(bpf.JumpNotEqual, 0), refuse,
			accept),
		ofKind(unix.RTM_NEWNETCONF, // of all links at once
			bpf.LoadAbsolute{Off: netconfValue, Size: 4},
			need(bpf.JumpEqual, ^uint32(0)), refuse, // netconfAll
			accept),
		[]bpf.Instruction{refuse},
	)
}

// kinds ends with a verdict for messages of some kinds.
func kinds(verdict bpf.RetConstant, list ...uint16) (p []bpf.Instruction) {
	for _, kind := range list {
		p = append(p, ofKind(kind, verdict)...)
	}
	return p
}

// ofKind decides on messages of one kind; then goes on with others.
func ofKind(kind uint16, decide ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: big16(kind), SkipTrue: uint8(len(decide))}}, decide...)
}

// need goes past the verdict that follows if the condition holds.
func need(cond bpf.JumpTest, value uint32) bpf.Instruction {
	return bpf.JumpIf{Cond: cond, Val: value, SkipTrue: 1}
}
