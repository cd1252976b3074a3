package tuning

import (
	"fmt"
	"math"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
)

// attributes are values of a link. What is nil is not given: on ADD it stays
// as it is, in the file for DEL it was not recorded.
type attributes struct {
	mac      net.HardwareAddr
	promisc  *bool
	mtu      *int // bytes
	allmulti *bool
	txQLen   *int // packets
}

// attribute is one value of a link.
type attribute struct {
	name  string // its key in the configuration and in the file for DEL
	value string // as people and the file write it
	set   func(l netlink.Link) error
}

// list returns the attributes that are given, in the order in which they are set and recorded.
func (a attributes) list() []attribute {
	var list []attribute
	if a.mac != nil {
		list = append(list, attribute{"mac", a.mac.String(), func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, a.mac) }})
	}
	if a.promisc != nil {
		list = append(list, attribute{"promisc", strconv.FormatBool(*a.promisc), switched(*a.promisc, netlink.SetPromiscOn, netlink.SetPromiscOff)})
	}
	if a.mtu != nil {
		list = append(list, attribute{"mtu", strconv.Itoa(*a.mtu), func(l netlink.Link) error { return netlink.LinkSetMTU(l, *a.mtu) }})
	}
	if a.allmulti != nil {
		list = append(list, attribute{"allmulti", strconv.FormatBool(*a.allmulti),
			switched(*a.allmulti, netlink.LinkSetAllmulticastOn, netlink.LinkSetAllmulticastOff)})
	}
	if a.txQLen != nil {
		list = append(list, attribute{"txQLen", strconv.Itoa(*a.txQLen), func(l netlink.Link) error { return netlink.LinkSetTxQLen(l, *a.txQLen) }})
	}
	return list
}

func switched(on bool, setOn, setOff func(netlink.Link) error) func(netlink.Link) error {
	if on {
		return setOn
	}
	return setOff
}

func (a attributes) isZero() bool { return len(a.list()) == 0 }

// override replaces the attributes that b gives.
func (a *attributes) override(b attributes) {
	if b.mac != nil {
		a.mac = b.mac
	}
	replace(&a.promisc, b.promisc)
	replace(&a.mtu, b.mtu)
	replace(&a.allmulti, b.allmulti)
	replace(&a.txQLen, b.txQLen)
}

func replace[T any](old **T, new *T) {
	if new != nil {
		*old = new
	}
}

// attributesOf returns what the link has of the attributes that like gives.
func attributesOf(l netlink.Link, like attributes) attributes {
	has := l.Attrs()
	of := attributes{
		promisc:  where(like.promisc, has.RawFlags&unix.IFF_PROMISC != 0),
		mtu:      where(like.mtu, has.MTU),
		allmulti: where(like.allmulti, has.RawFlags&unix.IFF_ALLMULTI != 0),
		txQLen:   where(like.txQLen, has.TxQLen),
	}
	if like.mac != nil {
		of.mac = has.HardwareAddr
	}
	return of
}

func where[T any](given *T, value T) *T {
	if given == nil {
		return nil
	}
	return &value
}

// The range of MTUs that are of any use, in bytes: IPv4's smallest (RFC 791),
// and that of the loopback link. A kind of link can have narrower bounds.
const minMTU, maxMTU = 68, 65536

// readAttributes reads the keys of the configuration, or of args.cni. There "promisc" false and "mtu" 0 are the same as
// none: promiscuous mode is only ever switched on.
func readAttributes(o *conf.Object) attributes {
	a := attributes{mac: readMAC(o)}
	promisc, mtu := false, 0
	o.Bool("promisc", &promisc)
	o.Int("mtu", &mtu)
	o.OptionalBool("allmulti", &a.allmulti)
	o.OptionalInt("txQLen", &a.txQLen)
	if promisc {
		a.promisc = &promisc
	}
	if mtu != 0 {
		a.mtu = &mtu
	}
	if mtu != 0 && (mtu < minMTU || mtu > maxMTU) {
		o.Fail("mtu", fmt.Sprintf("a number of bytes from %d to %d", minMTU, maxMTU), strconv.Itoa(mtu))
	}
	if a.txQLen != nil && (*a.txQLen < 0 || *a.txQLen > math.MaxInt32) {
		o.Fail("txQLen", fmt.Sprintf("a number of packets from 0 to %d", math.MaxInt32), strconv.Itoa(*a.txQLen))
	}
	return a
}

// readMAC reads the key "mac", nil if there is none.
func readMAC(o *conf.Object) net.HardwareAddr {
	text := ""
	o.String("mac", &text)
	if text == "" {
		return nil
	}
	mac, err := link.ParseMAC(text)
	if err != nil {
		o.Fail("mac", "the MAC address of one interface, such as 02:00:00:12:34:56", strconv.Quote(text))
		return nil
	}
	return mac
}
