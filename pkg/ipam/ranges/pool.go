// Package ranges reads which addresses an IPAM plugin is to hand out, in the form that host-local has for it.
package ranges

import (
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Range is a stretch of addresses of one family, both ends included, without Gateway, which is not handed out.
type Range struct {
	Subnet      netip.Prefix // it is a part of
	First, Last netip.Addr
	Gateway     netip.Addr
}

// Contains reports whether a lies in the range, the gateway included.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// String returns the range as first-last.
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// walk yields from, the addresses between and to, without the gateway.
func (r Range) walk(from, to netip.Addr, yield func(netip.Addr) bool) bool {
	for a := from; a.IsValid() && a.Compare(to) <= 0; a = a.Next() {
		if a != r.Gateway && !yield(a) {
			return false
		}
	}
	return true
}

// Pool is a range set: an attachment gets one address of it.
type Pool struct {
	Index  int // names the file that remembers where the next search starts
	Ranges []Range
	Want   netip.Addr // the address to take; the zero Addr is any
}

// Contains reports whether a lies in one of the pool's ranges.
func (p Pool) Contains(a netip.Addr) bool { return p.Find(a) >= 0 }

// String returns the pool as first-last,first-last.
func (p Pool) String() string {
	texts := make([]string, 0, len(p.Ranges))
	for _, r := range p.Ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

// Find returns which of the pool's ranges holds a, -1 if none does.
func (p Pool) Find(a netip.Addr) int {
	return slices.IndexFunc(p.Ranges, func(r Range) bool { return r.Contains(a) })
}

// After yields each address of the pool once, in the order of handing out: from the one behind last on, round to last itself. If last is
// not in the pool (the configuration changed) the order is that of the ranges.
func (p Pool) After(last netip.Addr) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		start := p.Find(last)
		if start < 0 {
			p.walk(0, len(p.Ranges), yield)
			return
		}
		r := p.Ranges[start]
		_ = r.walk(last.Next(), r.Last, yield) &&
			p.walk(start+1, len(p.Ranges), yield) &&
			p.walk(0, start, yield) &&
			r.walk(r.First, last, yield)
	}
}

// Size returns how many addresses the pool has to hand out, math.MaxUint64 if there are more than that.
func (p Pool) Size() uint64 {
	n := new(big.Int)
	for _, r := range p.Ranges {
		first, last := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int).SetBytes(r.Last.AsSlice())
		n.Add(n, last.Sub(last, first)).Add(n, big.NewInt(1))
		if r.Contains(r.Gateway) {
			n.Sub(n, big.NewInt(1))
		}
	}
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}

func (p Pool) walk(from, to int, yield func(netip.Addr) bool) bool {
	for _, r := range p.Ranges[from:to] {
		if !r.walk(r.First, r.Last, yield) {
			return false
		}
	}
	return true
}
