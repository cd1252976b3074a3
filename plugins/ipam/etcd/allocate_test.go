package etcd

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
)

// pool reads texts such as "10.0.0.1-10.0.0.9!10.0.0.1", the last being the gateway.
func poolOf(texts ...string) (p ranges.Pool) {
	for _, text := range texts {
		ends, gateway, hasGateway := strings.Cut(text, "!")
		first, last, _ := strings.Cut(ends, "-")
		r := ranges.Range{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
		if hasGateway {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

var pools = map[string]ranges.Pool{
	"one address":         poolOf("10.0.0.7-10.0.0.7"),
	"a few":               poolOf("10.0.0.1-10.0.0.6!10.0.0.1"),
	"as many as tries":    poolOf("10.0.0.1-10.0.0.48"),
	"one more":            poolOf("10.0.0.1-10.0.0.49"),
	"a /24":               poolOf("10.0.0.1-10.0.0.254!10.0.0.1"),
	"a /16":               poolOf("10.1.0.0-10.1.255.255!10.1.0.1"),
	"three ranges":        poolOf("10.0.0.1-10.0.0.1", "10.0.1.0-10.0.3.255!10.0.2.9", "10.9.0.3-10.9.0.4!10.9.0.3"),
	"to the last address": poolOf("255.255.254.0-255.255.255.255"),
	"IPv6":                poolOf("fd00::fff0-fd00::2:10!fd00::ffff"),
	"IPv6 to the end":     poolOf("ffff:ffff:ffff:ffff:ffff:ffff:ffff:f000-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
}

// TestSplit makes sure that the parts of a pool are all of it, in order, and no more than a few transactions can count.
func TestSplit(t *testing.T) {
	for name, p := range pools {
		pieces := split(p)
		if len(pieces) == 0 || len(pieces) > 2*operations {
			t.Errorf("%s: %d parts", name, len(pieces))
		}
		if got, want := (ranges.Pool{Ranges: pieces}).Size(), p.Size(); got != want {
			t.Errorf("%s: parts have %d addresses, the pool %d", name, got, want)
		}
		for i, piece := range pieces {
			if piece.Last.Less(piece.First) || i > 0 && !pieces[i-1].Last.Less(piece.First) {
				t.Errorf("%s: %v after %v", name, piece, pieces[max(i-1, 0)])
			}
		}
	}
}

// TestCandidates makes sure that each address to try is one that the pool has to hand out, and all are tried of a small pool.
func TestCandidates(t *testing.T) {
	pools := maps.Clone(pools) // TestSplit can't split those that are added
	pools["a /64"] = poolOf("fd00::-fd00::ffff:ffff:ffff:ffff!fd00::1")
	pools["two large ones"] = poolOf("fd00::-fd00::ffff:ffff:ffff:ffff", "fd01::-fd01::ffff:ffff:ffff:ffff:ffff")
	for name, p := range pools {
		list := candidates(p, tries)
		if want := int(min(p.Size(), tries)); len(list) != want {
			t.Errorf("%s: %d addresses, want %d", name, len(list), want)
		}
		for _, a := range list {
			if at := p.Find(a); at < 0 || p.Ranges[at].Gateway == a {
				t.Errorf("%s: %v", name, a)
			}
		}
		slices.SortFunc(list, netip.Addr.Compare)
		if len(slices.Compact(list)) != len(list) {
			t.Errorf("%s: an address is there twice", name)
		}
	}
	p := pools["a few"]
	p.Want = netip.MustParseAddr("10.0.0.5")
	if list := candidates(p, tries); len(list) != 1 || list[0] != p.Want {
		t.Errorf("asked for %v: %v", p.Want, list)
	}
}

func TestKeys(t *testing.T) {
	s, o := newSpace("/cnibox", "lan"), owner{"node1", "web", "eth0"}
	for text, want := range map[string]string{"10.88.0.7": "/cnibox/lan/ipv4/0a580007", "fd00::7": "/cnibox/lan/ipv6/fd000000000000000000000000000007"} {
		a := netip.MustParseAddr(text)
		if got := s.address(a); got != want {
			t.Errorf("%v is at %s, want %s", a, got, want)
		}
		if gotOwner, got, ok := s.parseHeld(o.Host, s.holds(o, a)); !ok || got != a || gotOwner != o {
			t.Errorf("%s is read as %v of %v", s.holds(o, a), got, gotOwner)
		}
		if v := parseOwner([]byte(o.value(a))); v.Address != a || v.owner != o {
			t.Errorf("%s is read as %v", o.value(a), v)
		}
	}
	for _, key := range []string{"", s.attachments("node1"), s.attachments("node1") + "web/eth0", s.attachments("node1") + "web/eth0/xx", s.attachments("node1") + "web/eth0/0a58", s.holds(o, netip.MustParseAddr("10.88.0.7")) + "/x"} {
		if _, _, ok := s.parseHeld("node1", key); ok {
			t.Errorf("%q is read as an address", key)
		}
	}
}
