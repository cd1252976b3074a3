package node

import (
	"net/netip"
	"testing"
)

func TestFreeSubnet(t *testing.T) {
	for _, tt := range []struct {
		bits  int
		taken []netip.Prefix
		want  string
	}{
		{24, nil, "10.112.0.0/24"},
		{16, nil, "10.112.0.0/16"},
		{8, nil, "10.112.0.0/12"},
		{24, parsePrefixes("10.112.0.0/24", "10.112.1.128/25", "192.0.2.0/24", "fd00::/64"), "10.112.2.0/24"},
		{24, parsePrefixes("10.112.0.0/16"), "10.113.0.0/24"},
		{24, parsePrefixes("10.0.0.0/8"), "172.20.0.0/24"},
		{24, parsePrefixes("10.0.0.0/8", "172.16.0.0/12"), "192.168.128.0/24"},
		{24, parsePrefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"), ""},
		{20, parsePrefixes("10.112.0.0/12", "172.20.0.0/24"), "172.20.16.0/20"},
	} {
		p, err := FreeSubnet(tt.bits, tt.taken)
		if (err == nil) != (tt.want != "") || err == nil && p.String() != tt.want {
			t.Errorf("%d bits, %s taken: %s, %v; want %s", tt.bits, tt.taken, p, err, tt.want)
		}
	}
}

func TestFreeIPv6Subnet(t *testing.T) {
	a, err := FreeIPv6Subnet(parsePrefixes("fd00::/16", "10.0.0.0/8"))
	b, err2 := FreeIPv6Subnet(nil)
	if err != nil || err2 != nil || a == b || a.Bits() != 64 || !netip.MustParsePrefix("fd00::/8").Contains(a.Addr()) || a != a.Masked() {
		t.Errorf("%s, %s: %v, %v", a, b, err, err2)
	}
	if p, err := FreeIPv6Subnet(parsePrefixes("fd00::/8")); err == nil {
		t.Errorf("%s, though all is taken", p)
	}
}
