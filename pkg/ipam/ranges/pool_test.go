package ranges

import (
	"net/netip"
	"strings"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// pool reads "first-last" or "first-last!gateway" texts.
func pool(index int, texts ...string) Pool {
	p := Pool{Index: index}
	for _, text := range texts {
		ends, gateway, ok := strings.Cut(text, "!")
		first, last, _ := strings.Cut(ends, "-")
		r := Range{First: addr(first), Last: addr(last)}
		if ok {
			r.Gateway = addr(gateway)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func TestPoolOrder(t *testing.T) {
	one := []string{"10.0.0.1-10.0.0.4!10.0.0.1"}
	two := []string{"10.0.0.1-10.0.0.3!10.0.0.2", "10.1.0.1-10.1.0.2!10.9.9.9"}
	for _, test := range []struct {
		name   string
		ranges []string
		last   string
		want   string
	}{
		{"from the start", one, "", "10.0.0.2 10.0.0.3 10.0.0.4"},
		{"behind the last", one, "10.0.0.3", "10.0.0.4 10.0.0.2 10.0.0.3"},
		{"behind the end", one, "10.0.0.4", "10.0.0.2 10.0.0.3 10.0.0.4"},
		{"last is of another range by now", one, "10.7.0.4", "10.0.0.2 10.0.0.3 10.0.0.4"},
		{"last is of another family", one, "fd00::1", "10.0.0.2 10.0.0.3 10.0.0.4"},
		{"last is the gateway by now", one, "10.0.0.1", "10.0.0.2 10.0.0.3 10.0.0.4"},
		{"through all ranges", two, "10.0.0.3", "10.1.0.1 10.1.0.2 10.0.0.1 10.0.0.3"},
		{"last in the second range", two, "10.1.0.1", "10.1.0.2 10.0.0.1 10.0.0.3 10.1.0.1"},
		{"up to the last address there is", []string{"255.255.255.254-255.255.255.255"}, "", "255.255.255.254 255.255.255.255"},
		{"and round it", []string{"255.255.255.254-255.255.255.255"}, "255.255.255.255", "255.255.255.254 255.255.255.255"},
		{"IPv6", []string{"fd00::fffe-fd00::1:1!fd00::ffff"}, "", "fd00::fffe fd00::1:0 fd00::1:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var last netip.Addr
			if test.last != "" {
				last = addr(test.last)
			}
			var got []string
			for a := range pool(0, test.ranges...).After(last) {
				got = append(got, a.String())
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), test.want)
			}
		})
	}
}

func TestPoolOrderStops(t *testing.T) {
	n := 0
	for range pool(0, "fd00::1-fd00::ffff:ffff:ffff:ffff").After(addr("fd00::1:0")) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("yielded %d addresses, want 3", n)
	}
}
