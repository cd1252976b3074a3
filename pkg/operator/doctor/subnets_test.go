package doctor

import (
	"net/netip"
	"testing"
)

func TestSpan(t *testing.T) {
	of := func(first, last string) span { return span{netip.MustParseAddr(first), netip.MustParseAddr(last)} }
	for _, tt := range []struct {
		a, b span
		want bool
	}{
		{of("10.0.0.0", "10.255.255.255"), of("10.88.0.0", "10.88.0.255"), true}, {of("10.88.0.255", "10.88.0.255"), of("10.88.0.0", "10.88.0.255"), true},
		{of("10.88.1.0", "10.88.1.255"), of("10.88.0.0", "10.88.0.255"), false}, {of("0.0.0.0", "255.255.255.255"), of("fd00::", "fd00::9"), false},
	} {
		if got := tt.a.meets(tt.b); got != tt.want || tt.b.meets(tt.a) != got {
			t.Errorf("%v and %v: %v", tt.a, tt.b, got)
		}
	}
}
