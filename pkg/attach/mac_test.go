package attach

import (
	"net/netip"
	"testing"
)

func TestMACOf(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"10.88.0.7", "0a:58:0a:58:00:07"},
		{"192.168.255.254", "0a:58:c0:a8:ff:fe"},
		{"fd00:88::7", "02:4a:2e:cc:1e:9e"},
		{"fd00:88::8", "02:46:e3:1f:9e:e9"},
	} {
		got := macOf(netip.MustParseAddr(c.address)).String()
		if got != c.want {
			t.Errorf("macOf(%s) = %s, want %s", c.address, got, c.want)
		}
	}
}
