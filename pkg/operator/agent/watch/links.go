package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	linkkind "github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// linkID is a link, by its index in the namespace with a number. Index 0 is the namespace as a whole, and rest what is too much to name.
type linkID struct {
	nsid  int
	index int32
}

// change is what became of something.
type change int

const (
	nothing    change = iota
	lost              // something that a link had
	down              // a link that was up
	unplugged         // a port that left its bridge
	gone              // a link
	ended             // a namespace
	forwarding        // which was turned off
)

// event is what one message tells.
type event struct {
	change
	linkID
	what    string // was lost
	by      uint32
	name    string // of a link that is gone
	kind    string // of the same
	carries bool   // attachments need it, and it is none of theirs alone
	master  int32  // the bridge of a port
}

// groups of rtnetlink, by their bits.
const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_TC-1) | 1<<(unix.RTNLGRP_NSID-1) |
	1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV4_RULE-1) | 1<<(unix.RTNLGRP_IPV4_NETCONF-1) |
	1<<(unix.RTNLGRP_IPV6_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)

// watchLinks hears of links, and of what they have, here and in the namespaces that have a number.
func (w *Watch) watchLinks() error {
	l, err := listen(unix.NETLINK_ROUTE, groups, linkFilter(w.programs.protocols()...), true)
	if err != nil {
		return plugin.Errorf("run it as root, with CAP_NET_ADMIN and CAP_NET_BROADCAST", "watch links and routes, of all namespaces: %w", err)
	}
	w.closeAtEnd(l)
	go func() {
		for {
			b, nsid, err := l.read()
			switch {
			case errors.Is(err, errLost):
				w.lose()
			case err != nil:
				w.end(fmt.Errorf("watch links and routes: %w", err))
				return
			default:
				w.readLinks(b, nsid)
			}
		}
	}()
	return nil
}

// lose says that anything may have happened.
func (w *Watch) lose() {
	w.mu.Lock()
	w.burst.ended[hostNumber] = true
	w.mu.Unlock()
	w.note(Hit{Kind: Any, What: "events of links and routes were lost"})
}

func (w *Watch) readLinks(b []byte, nsid int) {
	if nsid == w.links.own {
		nsid = hostNumber
	}
	for m := range messages(b) {
		e := parseLink(m, nsid)
		if e.change == nothing {
			continue
		}
		name := ""
		if e.carries || e.change == lost || e.change == unplugged || e.change == down {
			name = w.programs.nameOf(e.by)
		}
		if w.programs.isOurs(name) {
			e.carries = false
			if e.change != gone {
				continue
			}
		}
		w.add(e, describe(name, e.by))
	}
}

// add adds an event to the burst.
func (w *Watch) add(e event, by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.change == gone && e.kind == "veth" {
		w.unpaired = time.Now()
	}
	if e.carries && e.kind == "ifb" {
		doubted := e
		e.carries = false
		time.AfterFunc(doubt, func() { w.confirm(doubted, by) })
	}
	if w.burst.addEvent(e, by) {
		w.announce()
	}
}

// doubt is how long it may take a DEL to remove the veth pair after the ifb.
const doubt = 3 * time.Second

// confirm adds a deleted ifb if no DEL did it: the kernel does not say who deletes a link, and a DEL deletes a veth pair at about the same time.
func (w *Watch) confirm(e event, by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.unpaired) > 2*doubt && w.burst.addEvent(e, by) {
		w.announce()
	}
}

// parseLink reads what a message of rtnetlink tells, as far as linkFilter has not done so. The kernel made it, but names and addresses may be
// those that a container has chosen.
func parseLink(m message, nsid int) event {
	e := event{linkID: linkID{nsid: nsid}, by: m.from}
	isHost := nsid == hostNumber
	d := m.data
	switch {
	case m.kind == unix.RTM_DELLINK && len(d) >= unix.SizeofIfInfomsg:
		e.index = number(d[4:])
		return parseLinkGone(e, d)
	case m.kind == unix.RTM_NEWLINK && len(d) >= unix.SizeofIfInfomsg:
		if flags, changed := uint32(number(d[8:])), uint32(number(d[12:])); changed&unix.IFF_UP != 0 && changed != ^uint32(0) && flags&unix.IFF_UP == 0 {
			e.change, e.index = down, number(d[4:])
		}
	case m.kind == unix.RTM_DELADDR && len(d) >= unix.SizeofIfAddrmsg:
		local := attribute(d, unix.SizeofIfAddrmsg, unix.IFA_LOCAL)
		if local == nil {
			local = attribute(d, unix.SizeofIfAddrmsg, unix.IFA_ADDRESS)
		}
		e.change, e.index, e.what = lost, number(d[4:]), "address "+prefix(local, d[1])
	case m.kind == unix.RTM_DELROUTE && len(d) >= unix.SizeofRtMsg:
		e.index = number(attribute(d, unix.SizeofRtMsg, unix.RTA_OIF))
		if e.index != 0 || !isHost {
			e.change, e.what = lost, "route "+prefix(attribute(d, unix.SizeofRtMsg, unix.RTA_DST), d[1])
		}
	case m.kind == unix.RTM_DELRULE && !isHost: // no plugin has rules on the host
		e.change, e.what = lost, "rule for routes"
	case m.kind == unix.RTM_DELQDISC && len(d) >= sizeofTcmsg && number(d[8:]) != 0:
		e.change, e.index, e.what = lost, number(d[4:]), "qdisc "+harmless(text(attribute(d, sizeofTcmsg, unix.TCA_KIND)))
	case m.kind == unix.RTM_DELTFILTER && len(d) >= sizeofTcmsg:
		e.change, e.index, e.what = lost, number(d[4:]), "filter "+harmless(text(attribute(d, sizeofTcmsg, unix.TCA_KIND)))
	case m.kind == unix.RTM_DELNSID && isHost: // what others have numbers for is theirs
		if id := attribute(d, sizeofRtgenmsg, unix.NETNSA_NSID); len(id) == 4 {
			e.change, e.nsid = ended, int(number(id))
		}
	case m.kind == unix.RTM_NEWNETCONF && isHost && len(d) >= sizeofNetconfmsg:
		index, on := attribute(d, sizeofNetconfmsg, netconfaIfindex), attribute(d, sizeofNetconfmsg, netconfaForwarding)
		if len(index) == 4 && number(index) == netconfAll && len(on) == 4 && number(on) == 0 {
			e.change, e.what = forwarding, map[byte]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"}[d[0]]
		}
	}
	return e
}

// Of linux/rtnetlink.h, pkt_sched.h and netconf.h, with what fills headers up.
const (
	sizeofTcmsg        = 20
	sizeofRtgenmsg     = 4
	sizeofNetconfmsg   = 4
	netconfaIfindex    = 1
	netconfaForwarding = 2
	netconfAll         = -1
	iflaNewNetnsid     = 45
)

// parseLinkGone reads the rest of RTM_DELLINK, which also says that a port left its bridge.
func parseLinkGone(e event, d []byte) event {
	e.change = gone
	moved := false
	for n, value := range attributes(d, unix.SizeofIfInfomsg) {
		switch n {
		case unix.IFLA_IFNAME:
			e.name = text(value)
		case unix.IFLA_MASTER:
			e.master = number(value)
		case unix.IFLA_LINKINFO:
			e.kind = text(attribute(value, 0, unix.IFLA_INFO_KIND))
		case iflaNewNetnsid:
			moved = true
		}
	}
	switch {
	case d[0] == unix.AF_BRIDGE:
		e.change = unplugged
	case moved:
	case e.kind == linkkind.KindBridge, e.kind == linkkind.KindVLAN, e.kind == "ifb":
		e.carries = e.nsid == hostNumber
	case e.kind == linkkind.KindVRF:
		e.carries = true
	}
	return e
}

// prefix returns an address with its length, "default" for none.
func prefix(b []byte, bits byte) string {
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return "default"
	}
	return fmt.Sprintf("%s/%d", addr, bits)
}

// big returns a number as the kernel's filter reads it out of a message, which takes the bytes in the order of the network.
func big(v uint32) uint32 { return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, v)) }
func big16(v uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)))
}
