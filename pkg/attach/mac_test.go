package attach

import (
	"net/netip"
	"testing"
)

func TestMACOf(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"10.88.0.7", "0a:58:0a:58:00:07"},
		{"192.168.255.254", "0a:58:c0:a8:ff:fe"},
		{"fd00:88::7", "02:96:d3:f7:95:9d"},
		{"fd00:88::8", "02:18:11:85:55:02"},
	} {
		got := macOf(netip.MustParseAddr(c.address)).String()
		if got != c.want {
			t.Errorf("macOf(%s) = %s, want %s", c.address, got, c.want)
		}
	}
}
