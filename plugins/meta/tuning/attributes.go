package tuning

import (
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
)

// attributes are values of a link. What is nil is not given: on ADD it stays
// as it is, in the file for DEL it was not recorded.
type attributes struct {
	mac      *[6]byte
	promisc  *bool
	mtu      *int // bytes
	allmulti *bool
	txQLen   *int // packets
}

// attribute is one value of a link.
type attribute struct {
	name  string // its key in the configuration and in the file for DEL
	value string // as people and the file write it
	set   func(c *link.Conn, index int) error
}

// list returns the attributes that are given, in the order in which they are
// set and recorded.
func (a attributes) list() []attribute {
	var list []attribute
	if a.mac != nil {
		list = append(list, attribute{"mac", macText(*a.mac), func(c *link.Conn, index int) error {
			return c.SetMAC(index, *a.mac)
		}})
	}
	if a.promisc != nil {
		list = append(list, attribute{"promisc", strconv.FormatBool(*a.promisc), func(c *link.Conn, index int) error {
			return c.SetFlag(index, unix.IFF_PROMISC, *a.promisc)
		}})
	}
	if a.mtu != nil {
		list = append(list, attribute{"mtu", strconv.Itoa(*a.mtu), func(c *link.Conn, index int) error {
			return c.SetMTU(index, *a.mtu)
		}})
	}
	if a.allmulti != nil {
		list = append(list, attribute{"allmulti", strconv.FormatBool(*a.allmulti), func(c *link.Conn, index int) error {
			return c.SetFlag(index, unix.IFF_ALLMULTI, *a.allmulti)
		}})
	}
	if a.txQLen != nil {
		list = append(list, attribute{"txQLen", strconv.Itoa(*a.txQLen), func(c *link.Conn, index int) error {
			return c.SetTxQueue(index, *a.txQLen)
		}})
	}
	return list
}

// override replaces the attributes that b gives.
func (a *attributes) override(b attributes) {
	replace(&a.mac, b.mac)
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
func attributesOf(l *link.Link, like attributes) attributes {
	promisc, allmulti := l.Flags&unix.IFF_PROMISC != 0, l.Flags&unix.IFF_ALLMULTI != 0
	return attributes{
		mac:      where(like.mac, l.MAC),
		promisc:  where(like.promisc, promisc),
		mtu:      where(like.mtu, l.MTU),
		allmulti: where(like.allmulti, allmulti),
		txQLen:   where(like.txQLen, l.TxQueue),
	}
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

// readAttributes reads the keys of the configuration, or of args.cni. There
// "promisc" false and "mtu" 0 are the same as none: promiscuous mode is only
// ever switched on.
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
func readMAC(o *conf.Object) *[6]byte {
	text := ""
	o.String("mac", &text)
	if text == "" {
		return nil
	}
	mac, err := parseMAC(text)
	if err != nil {
		o.Fail("mac", "the MAC address of one interface, such as 02:00:00:12:34:56", strconv.Quote(text))
		return nil
	}
	return &mac
}

// parseMAC reads a MAC address that an Ethernet link can have.
func parseMAC(text string) ([6]byte, error) {
	mac, err := link.ParseMAC(text)
	if err != nil {
		return mac, err
	}
	if mac[0]&1 != 0 || mac == [6]byte{} {
		return mac, fmt.Errorf("%q is no MAC address of one interface: its first byte is odd or all are zero", text)
	}
	return mac, nil
}

func macText(mac [6]byte) string { return link.MACText(mac) }
