package reach

import (
	"net/netip"
	"strings"
	"testing"
)

// seeds are entries of each form, and some that are nearly one.
var seeds = []string{
	"192.0.2.7", "10.20.0.0/16", "0.0.0.0/0", "192.0.2.7:443", "10.20.0.0/16:8000-8010/tcp", "255.255.255.255:65535/sctp",
	"2001:db8::7", "2001:db8::/32", "::/0", "[2001:db8::53]:53/udp", "[2001:db8::/32]:1-65535", "::ffff:192.0.2.7", "fe80::1%eth0",
	"api.example.com", "api.example.com:443", "*.Pkg.example.org.:80/tcp", "*.", "*.*.x", "1.2.3", "1.2.3.4.", "x:",
	"192.0.2.7:0", "192.0.2.7:2-1", "192.0.2.7/tcp", "192.0.2.7/24", "[::1]", "[192.0.2.7]:80", "[::1]80", "[::1", "x:1/udp/tcp", "",
}

// FuzzParse reads any text as an entry. What can be read is written so that it is read again, as the same.
func FuzzParse(f *testing.F) {
	for _, text := range seeds {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			if e != (Entry{}) {
				t.Fatalf("%q is no entry (%v), and is %+v", text, err, e)
			}
			return
		}
		again, err := Parse(e.String())
		if err != nil || again != e {
			t.Fatalf("%q is %+v, written as %q, and read as %+v, %v", text, e, e, again, err)
		}
		if !e.Has(e) {
			t.Fatalf("%q does not have itself", text)
		}
		if e.Name == "" && e.Prefix != e.Prefix.Masked() {
			t.Fatalf("%q has bits of a host: %s", text, e.Prefix)
		}
	})
}

// FuzzLists reads two pairs of lists, with an entry a line. What both together let pass, each does; no two boxes have anything in common.
func FuzzLists(f *testing.F) {
	f.Add("192.0.2.0/24:80\n10.0.0.0/8", "192.0.2.7", "192.0.2.7:443", "10.1.0.0/16:53/udp", "192.0.2.7", uint16(80))
	f.Add("::/0", "2001:db8::7:1-9", "[2001:db8::/32]:5-70/sctp\n[2001:db8::/31]:7-8/sctp", "0.0.0.0/0", "2001:db8::7", uint16(7))
	f.Fuzz(func(t *testing.T, allow, deny, allow2, deny2, address string, port uint16) {
		one, two := Lists{Closed: true, Allow: entriesOf(allow), Deny: entriesOf(deny)}, Lists{Closed: true, Allow: entriesOf(allow2), Deny: entriesOf(deny2)}
		both := one.And(two)
		if addr, err := netip.ParseAddr(address); err == nil {
			for _, p := range []Protocols{TCP, UDP, SCTP} {
				if passes := one.Permits(addr, p, port) && two.Permits(addr, p, port); both.Permits(addr, p, port) != passes {
					t.Fatalf("port %d of %s, %d: each of them %v, and both together %v", port, addr, p, passes, !passes)
				}
			}
		}
		for _, is4 := range []bool{true, false} {
			for _, list := range [][]Entry{both.Allow, both.WithEmbedded().Deny} {
				boxes := Boxes(list, is4)
				for i, b := range boxes {
					for _, c := range boxes[:i] {
						if b.Protocol == c.Protocol && b.overlaps(c) {
							t.Fatalf("%v and %v overlap", b, c)
						}
					}
				}
			}
		}
	})
}

func (b Box) overlaps(c Box) bool {
	return b.Range.First.Compare(c.Range.Last) <= 0 && c.Range.First.Compare(b.Range.Last) <= 0 && b.First <= c.Last && c.First <= b.Last
}

func entriesOf(text string) (list []Entry) {
	for line := range strings.Lines(text) {
		const most = 20 // which is enough, and boxes are compared with each other
		if e, err := Parse(strings.TrimSuffix(line, "\n")); err == nil && len(list) < most {
			list = append(list, e)
		}
	}
	return list
}
