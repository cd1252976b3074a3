package doctor

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// acceptance is a rule that accepts, by what it names. One that asks for something else besides may not accept all of that.
type acceptance struct {
	chain string
	links []string // with a "*" at the end, all that begin so
	spans []span
	mark  []byte // of the packet, as the kernel has it in memory
	other bool   // it asks for something else
}

// span is addresses from first to last.
type span struct{ first, last netip.Addr }

func spanOf(p netip.Prefix) span {
	last := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return span{p.Masked().Addr(), result.Addr(last)}
}

func (s span) String() string { return s.first.String() + "-" + s.last.String() }

func (s span) overlaps(p netip.Prefix) bool { return s.meets(spanOf(p)) }

func (s span) meets(o span) bool {
	return s.first.BitLen() == o.first.BitLen() && s.first.Compare(o.last) <= 0 && o.first.Compare(s.last) <= 0
}

// isForAll reports whether the rule asks for nothing.
func (a acceptance) isForAll() bool {
	return a.links == nil && a.spans == nil && a.mark == nil && !a.other
}

// isFor reports whether the rule names a network.
func (a acceptance) isFor(n *network) bool {
	names := []string{n.bridge()}
	if n.find(func(f plugin.Facts) bool { return f.HasHostEnd && f.Bridge == "" }) != nil {
		names = append(names, "veth")
	}
	for _, l := range a.links {
		start, wild := strings.CutSuffix(l, "*")
		isOf := func(name string) bool { return name == l || wild && name != "" && strings.HasPrefix(name, start) }
		if slices.ContainsFunc(names, isOf) {
			return true
		}
	}
	for _, p := range n.subnets() {
		if slices.ContainsFunc(a.spans, func(s span) bool { return s.overlaps(p) }) {
			return true
		}
	}
	return false
}

// kind is what a value is that a rule compares.
type kind int

const (
	kindOther kind = iota
	kindFamily
	kindLink
	kindIPv4
	kindIPv6
	kindMark
)

// kindAt returns what is at an offset of a packet's IP header, where source and destination are. Of an address the first bytes may do.
func kindAt(offset, length uint32) kind {
	switch {
	case offset == 12 || offset == 16:
		return kindIPv4
	case (offset == 8 || offset == 24) && length > 1: // the one byte is IPv4's time to live
		return kindIPv6
	}
	return kindOther
}

// acceptanceOf reads what a rule compares: each value is loaded, perhaps masked, and compared with one or looked up in a set.
func acceptanceOf(conn *nftables.Conn, rule *nftables.Rule) (a acceptance, err error) {
	a.chain = rule.Chain.Name
	loaded, mask := kindOther, []byte(nil)
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Meta:
			loaded, mask = kindOf(e.Key), nil
		case *expr.Payload:
			loaded, mask = kindOther, nil
			if e.Base == expr.PayloadBaseNetworkHeader {
				loaded = kindAt(e.Offset, e.Len)
			}
		case *expr.Bitwise:
			mask = e.Mask
		case *expr.Cmp:
			if e.Op == expr.CmpOpEq {
				a.require(loaded, e.Data, mask)
			} else {
				a.other = true
			}
		case *expr.Lookup:
			elements, err := conn.GetSetElements(&nftables.Set{Table: rule.Table, Name: e.SetName})
			if err != nil {
				return a, err
			}
			a.takeSet(loaded, elements)
		case *expr.Match:
			a.other = a.other || e.Name != "comment"
		case *expr.Counter, *expr.Verdict, *expr.Log:
		default:
			loaded, a.other = kindOther, true
		}
	}
	return a, nil
}

func kindOf(k expr.MetaKey) kind {
	switch k {
	case expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME:
		return kindLink
	case expr.MetaKeyNFPROTO:
		return kindFamily
	case expr.MetaKeyMARK:
		return kindMark
	}
	return kindOther
}

// require notes what a value has to be.
func (a *acceptance) require(k kind, data, mask []byte) {
	switch k {
	case kindLink:
		name, _, whole := bytes.Cut(data, []byte{0})
		if !whole {
			name = append(slices.Clone(name), '*')
		}
		a.links = append(a.links, string(name))
	case kindIPv4, kindIPv6:
		bits := len(data) * 8
		for i := 0; i < len(mask)*8; i++ {
			if mask[i/8]&(0x80>>(i%8)) == 0 {
				bits = i
				break
			}
		}
		whole := make([]byte, 4)
		if k == kindIPv6 {
			whole = make([]byte, 16)
		}
		copy(whole, data)
		a.spans = append(a.spans, spanOf(netip.PrefixFrom(result.Addr(whole), bits)))
	case kindMark:
		a.mark = data
	case kindOther:
		a.other = true
	}
}

// takeSet notes the elements of a set. Those of an interval are its first address, and the one behind its last.
func (a *acceptance) takeSet(k kind, elements []nftables.SetElement) {
	slices.SortFunc(elements, func(x, y nftables.SetElement) int { return bytes.Compare(x.Key, y.Key) })
	for _, e := range elements {
		address, isAddress := netip.AddrFromSlice(e.Key)
		isAddress = isAddress && (k == kindIPv4 || k == kindIPv6)
		last := len(a.spans) - 1
		switch {
		case isAddress && e.IntervalEnd && last >= 0:
			a.spans[last].last = address.Prev()
		case isAddress && e.IntervalEnd: // of no interval
		case isAddress:
			a.spans = append(a.spans, span{address, address})
		default:
			a.require(k, e.Key, nil)
		}
	}
}
