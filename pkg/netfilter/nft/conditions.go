package nft

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/nftables"
)

// conditions are what a connection must meet to be sent to a port; all of them.
type conditions struct {
	list []condition
	id   uint32 // of what they say, the same for the same; 0: there are none
}

// condition compares something of a packet with values: one of them has to
// match, or none if it is negated.
type condition struct {
	field   field
	negated bool
	values  []value
}

// field is what a condition is about.
type field string

const (
	fieldSrc    field = "saddr"
	fieldDst    field = "daddr"
	fieldInLink field = "iifname"
	fieldMark   field = "mark"
)

// value is what a condition compares with, as its field has it.
type value struct {
	network    netip.Prefix
	link       string // ends in *: all that begins so
	mark, mask uint32
}

// Bounds of conditions. The kernel follows 16 jumps, and a list takes one.
const (
	maxLists  = 8
	maxValues = 256
)

func (v value) String() string {
	switch {
	case v.network.IsValid():
		return v.network.String()
	case v.link != "":
		return v.link
	}
	return fmt.Sprintf("%#x/%#x", v.mark, v.mask)
}

func (c condition) String() string {
	op := "=="
	if c.negated {
		op = "!="
	}
	var values []string
	for _, v := range c.values {
		values = append(values, v.String())
	}
	return fmt.Sprintf("%s %s {%s}", c.field, op, strings.Join(values, ","))
}

// String returns the conditions in one form, however they were written.
func (c conditions) String() string {
	var all []string
	for _, x := range c.list {
		all = append(all, x.String())
	}
	return strings.Join(all, " ")
}

// identify sets the id. A node has a handful of different conditions, those of
// its networks' configurations.
func (c *conditions) identify() {
	if len(c.list) == 0 {
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.String()))
	c.id = max(h.Sum32(), 1)
}

// normalize puts the values in order, each once.
func (c *condition) normalize() {
	slices.SortFunc(c.values, func(x, y value) int { return strings.Compare(x.String(), y.String()) })
	c.values = slices.Compact(c.values)
}

// chains returns chains that go on to rules if the conditions are met, and
// otherwise return to where the first of them was jumped to. It is the last in
// the list.
//
// What must not be, and what must be one value, is a rule with a return. A list
// of values, of which one must be, is a rule for each that goes on in another
// chain: sets would need an order of their own for each kind of value.
func (c conditions) chains(f *family, part string, then []nftables.Rule) []nftables.Chain {
	chains := []nftables.Chain{{Name: partName(partDNAT, part)}}
	for _, x := range c.list {
		last := &chains[len(chains)-1]
		switch {
		case x.negated:
			for _, v := range x.values {
				last.Rules = append(last.Rules, nftables.MakeRule(x.compare(f, unix.NFT_CMP_EQ, v), nftables.Return()))
			}
		case len(x.values) == 1:
			last.Rules = append(last.Rules, nftables.MakeRule(x.compare(f, unix.NFT_CMP_NEQ, x.values[0]), nftables.Return()))
		default:
			next := partName(fmt.Sprintf("%s%d", partDNAT, len(chains)), part)
			for _, v := range x.values {
				last.Rules = append(last.Rules, nftables.MakeRule(x.compare(f, unix.NFT_CMP_EQ, v), nftables.Goto(next)))
			}
			chains = append(chains, nftables.Chain{Name: next})
		}
	}
	last := &chains[len(chains)-1]
	last.Rules = append(last.Rules, then...)
	slices.Reverse(chains)
	return chains
}

// compare ends a rule unless the packet relates to the value by op.
func (c condition) compare(f *family, op uint32, v value) []nftables.Expr {
	switch c.field {
	case fieldSrc:
		return f.compare(f.src(), op, v.network)
	case fieldDst:
		return f.compare(f.dst(), op, v.network)
	case fieldInLink:
		if prefix, all := strings.CutSuffix(v.link, "*"); all {
			return nftables.Compare(nftables.InLink(), op, []byte(prefix))
		}
		return nftables.Compare(nftables.InLink(), op, nftables.Link(v.link))
	}
	if v.mask == ^uint32(0) {
		return nftables.Compare(nftables.Mark(), op, nftables.Native(v.mark))
	}
	return nftables.CompareMasked(nftables.Mark(), nftables.Native(v.mask), op, nftables.Native(v.mark))
}

func (f *family) compare(l nftables.Load, op uint32, network netip.Prefix) []nftables.Expr {
	if network.IsSingleIP() {
		return nftables.MakeRule(is(f), nftables.Compare(l, op, network.Addr().AsSlice()))
	}
	return nftables.MakeRule(is(f), nftables.CompareNet(l, op, network))
}
