package lease

import (
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// pool reads "first-last" or "first-last!gateway" texts.
func pool(index int, texts ...string) ranges.Pool {
	p := ranges.Pool{Index: index}
	for _, text := range texts {
		ends, gateway, ok := strings.Cut(text, "!")
		first, last, _ := strings.Cut(ends, "-")
		r := ranges.Range{First: addr(first), Last: addr(last)}
		if ok {
			r.Gateway = addr(gateway)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}
