// Package reach says what a list of destinations has in it: entries as people write them, and what is left of several lists.
package reach

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/result"
)

// Entry is a destination.
type Entry struct {
	Name   string       // in place of a prefix; "*." in front of it is any name below
	Prefix netip.Prefix // without host bits; beside a name, the addresses to which that may lead
	Ports  Ports
}

// Ports are those of some protocols. The zero Ports are all of IP.
type Ports struct {
	Protocols   Protocols
	First, Last uint16
}

// Protocols is a set of those that have ports.
type Protocols uint8

// The protocols.
const (
	TCP Protocols = 1 << iota
	UDP
	SCTP
)

var protocols = []struct {
	Protocols
	name   string
	number uint8
}{{TCP, "tcp", unix.IPPROTO_TCP}, {UDP, "udp", unix.IPPROTO_UDP}, {SCTP, "sctp", unix.IPPROTO_SCTP}}

// Numbers returns their numbers in IP.
func (p Protocols) Numbers() (list []uint8) {
	for _, known := range protocols {
		if p&known.Protocols != 0 {
			list = append(list, known.number)
		}
	}
	return list
}

// Parse reads an entry: an address, a prefix or a name, then perhaps :port or :port-port, then perhaps /tcp, /udp or /sctp.
func Parse(text string) (e Entry, err error) {
	host, port, err := split(text, &e.Ports)
	if err != nil {
		return Entry{}, err
	}
	if port != "" {
		if err := e.Ports.parse(port); err != nil {
			return Entry{}, err
		}
	} else if e.Ports.Protocols != 0 {
		return Entry{}, errors.New("a protocol without a port")
	}
	if err := e.parseHost(host); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// split takes the protocol off, and the port.
func split(text string, ports *Ports) (host, port string, err error) {
	for _, p := range protocols {
		if rest, is := strings.CutSuffix(text, "/"+p.name); is {
			text, ports.Protocols = rest, p.Protocols
			break
		}
	}
	if inside, is := strings.CutPrefix(text, "["); is {
		host, behind, closed := strings.Cut(inside, "]")
		port, hasPort := strings.CutPrefix(behind, ":")
		if !closed || behind != "" && !hasPort || hasPort && port == "" || !strings.Contains(host, ":") {
			return "", "", errors.New("brackets are for an IPv6 address or prefix, with :port behind them")
		}
		return host, port, nil
	}
	if strings.Count(text, ":") > 1 {
		return text, "", nil // of IPv6
	}
	host, port, hasPort := strings.Cut(text, ":")
	if hasPort && port == "" {
		return "", "", errors.New("no port behind the colon")
	}
	return host, port, nil
}

func (p *Ports) parse(text string) error {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || from == 0 || from > to {
		return fmt.Errorf("%q is no port from 1 to 65535, and no range of them", text)
	}
	p.First, p.Last = uint16(from), uint16(to)
	if p.Protocols == 0 {
		p.Protocols = TCP | UDP
	}
	return nil
}

func (e *Entry) parseHost(host string) error {
	prefix, err := netip.ParsePrefix(host)
	addr, is := netip.ParseAddr(host)
	if is == nil {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case addr.Zone() != "":
		return errors.New("an address with a zone means nothing outside of its link")
	case err == nil && prefix.Addr().Is4In6():
		return errors.New("an IPv4 address in IPv6's form: write it as IPv4")
	case err == nil && prefix != prefix.Masked():
		return fmt.Errorf("an address in the network %s, and not the network", prefix.Masked())
	case err == nil:
		e.Prefix = prefix
		return nil
	case !isName(strings.TrimPrefix(host, "*.")):
		return fmt.Errorf("%q is no address, no prefix and no name", host)
	}
	e.Name = strings.ToLower(strings.TrimSuffix(host, "."))
	return nil
}

// isName reports whether a text can be a name of DNS, and none that is meant for an address: the last label of those has digits alone.
func isName(text string) bool {
	text = strings.TrimSuffix(text, ".")
	last := text[strings.LastIndex(text, ".")+1:]
	return names.Validate(text) == nil && strings.Trim(last, "0123456789") != ""
}

// String returns the entry as Parse reads it.
func (e Entry) String() string {
	text := e.Name
	if text == "" {
		text = e.Prefix.String()
		if e.Prefix.IsSingleIP() {
			text = e.Prefix.Addr().String()
		}
	}
	if e.Ports.Protocols == 0 {
		return text
	}
	if strings.Contains(text, ":") {
		text = "[" + text + "]"
	}
	text += fmt.Sprintf(":%d", e.Ports.First)
	if e.Ports.Last != e.Ports.First {
		text += fmt.Sprintf("-%d", e.Ports.Last)
	}
	for _, p := range protocols {
		if e.Ports.Protocols == p.Protocols {
			text += "/" + p.name
		}
	}
	return text // of TCP and UDP there is nothing to say; more than these two are in no entry
}

// Has reports whether all of another entry is in the entry.
func (e Entry) Has(other Entry) bool {
	both, overlap := e.and(other)
	return overlap && both == other
}

// and returns what is in both of two entries, if anything is.
func (e Entry) and(other Entry) (both Entry, overlap bool) {
	if both.Name, overlap = bothNames(e.Name, other.Name); !overlap {
		return Entry{}, false
	}
	if both.Prefix, overlap = bothPrefixes(e.Prefix, other.Prefix); !overlap {
		return Entry{}, false
	}
	switch a, b := e.Ports, other.Ports; {
	case a.Protocols == 0:
		both.Ports = b
	case b.Protocols == 0:
		both.Ports = a
	default:
		both.Ports = Ports{a.Protocols & b.Protocols, max(a.First, b.First), min(a.Last, b.Last)}
		overlap = both.Ports.Protocols != 0 && both.Ports.First <= both.Ports.Last
		return both, overlap
	}
	return both, true
}

// Lists are what may be reached.
type Lists struct {
	Closed bool // all but Allow is closed; else all but Deny is open
	Allow  []Entry
	Deny   []Entry // is closed whatever is in Allow
	NoNode bool    // so are the node's own addresses
}

// And returns the lists that let pass what both do.
func (l Lists) And(other Lists) Lists {
	both := Lists{Closed: l.Closed || other.Closed, Deny: slices.Concat(l.Deny, other.Deny), NoNode: l.NoNode || other.NoNode}
	switch {
	case !l.Closed:
		both.Allow = other.Allow
	case !other.Closed:
		both.Allow = l.Allow
	default:
		for _, a := range l.Allow {
			for _, b := range other.Allow {
				if e, overlap := a.and(b); overlap {
					both.Allow = append(both.Allow, e)
				}
			}
		}
	}
	return both
}

// Permits reports whether a port of an address is open. It leaves the node's addresses out of account.
func (l Lists) Permits(addr netip.Addr, p Protocols, port uint16) bool {
	asked := Entry{Prefix: netip.PrefixFrom(addr, addr.BitLen()), Ports: Ports{p, port, port}}
	has := func(e Entry) bool { return e.Has(asked) }
	return !slices.ContainsFunc(l.Deny, has) && (!l.Closed || slices.ContainsFunc(l.Allow, has))
}

// Range is addresses, the ends included.
type Range struct{ First, Last netip.Addr }

func rangeOf(p netip.Prefix) Range { return Range{p.Masked().Addr(), result.Last(p)} }

// Nets returns the addresses of one family that are in entries for all of IP: ranges in order, with something between any two.
func Nets(entries []Entry, is4 bool) (list []Range) {
	for _, e := range entries {
		if e.Ports.Protocols == 0 && e.isOf(is4) {
			list = append(list, rangeOf(e.Prefix))
		}
	}
	slices.SortFunc(list, func(a, b Range) int { return a.First.Compare(b.First) })
	merged := list[:0]
	for _, r := range list {
		if n := len(merged); n > 0 && (merged[n-1].Last.Next() == r.First || merged[n-1].Last.Compare(r.First) >= 0) {
			if r.Last.Compare(merged[n-1].Last) > 0 {
				merged[n-1].Last = r.Last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

func (e Entry) isOf(is4 bool) bool { return e.Name == "" && e.Prefix.Addr().Is4() == is4 }

// Box is a range of ports at a range of addresses.
type Box struct {
	Range
	Protocol    uint8
	First, Last uint16
}

// Boxes returns the ports of addresses of one family that entries have. No two have anything in common.
func Boxes(entries []Entry, is4 bool) (list []Box) {
	var ends []netip.Addr // where a range begins, and where it is over
	begin, end := map[netip.Addr][]Entry{}, map[netip.Addr][]Entry{}
	for _, e := range entries {
		if e.Ports.Protocols != 0 && e.isOf(is4) {
			at := rangeOf(e.Prefix)
			ends, begin[at.First] = append(ends, at.First), append(begin[at.First], e)
			if next := at.Last.Next(); next.IsValid() {
				ends, end[next] = append(ends, next), append(end[next], e)
			}
		}
	}
	slices.SortFunc(ends, netip.Addr.Compare)
	ends = slices.Compact(ends)
	before := map[uint8][]Box{} // at the range that ends where the next one begins
	open := map[Entry]int{}     // there
	for i, first := range ends {
		last := lastOf(is4)
		if i+1 < len(ends) {
			last = ends[i+1].Prev()
		}
		for _, e := range end[first] {
			if open[e]--; open[e] == 0 {
				delete(open, e)
			}
		}
		for _, e := range begin[first] {
			open[e]++
		}
		for _, p := range protocols {
			var here []Box
			for _, ports := range portsOf(open, p.Protocols) {
				here = append(here, Box{Range{first, last}, p.number, ports.First, ports.Last})
			}
			if samePorts(before[p.number], here) {
				for i := range before[p.number] {
					before[p.number][i].Range.Last = last
				}
				continue
			}
			list = append(list, before[p.number]...)
			before[p.number] = here
		}
	}
	for _, p := range protocols {
		list = append(list, before[p.number]...)
	}
	return list
}

func lastOf(is4 bool) netip.Addr {
	if is4 {
		return result.Last(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	}
	return result.Last(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

func samePorts(a, b []Box) bool {
	return slices.EqualFunc(a, b, func(x, y Box) bool { return x.First == y.First && x.Last == y.Last })
}

// portsOf returns the ports of a protocol that entries have, in order, with something between any two ranges.
func portsOf(entries map[Entry]int, p Protocols) (merged []Ports) {
	var list []Ports
	for e := range entries {
		if e.Ports.Protocols&p != 0 {
			list = append(list, e.Ports)
		}
	}
	slices.SortFunc(list, func(a, b Ports) int { return cmp.Compare(a.First, b.First) })
	for _, r := range list {
		if n := len(merged); n > 0 && int(r.First) <= int(merged[n-1].Last)+1 {
			merged[n-1].Last = max(merged[n-1].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
