package spec

import (
	"net/netip"
	"testing"
)

func TestPortMapString(t *testing.T) {
	for _, tt := range []struct {
		m    PortMap
		want string
	}{
		{PortMap{Protocol: 6, HostPort: 8080}, "tcp/8080"},
		{PortMap{Protocol: 17, HostPort: 53, HostIP: netip.MustParseAddr("192.0.2.1")}, "udp/192.0.2.1:53"},
		{PortMap{Protocol: 132, HostPort: 9, HostIP: netip.MustParseAddr("2001:db8::1")}, "sctp/[2001:db8::1]:9"},
		{PortMap{Protocol: 33, HostPort: 9}, "33/9"},
	} {
		if got := tt.m.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestSNATLink(t *testing.T) {
	for _, tt := range []struct {
		p    PortNeeds
		want string
	}{
		{PortNeeds{SNAT: true, Inside: "cni0"}, "cni0"},
		{PortNeeds{SNAT: false, Inside: "cni0"}, ""},
		{PortNeeds{SNAT: true}, ""},
	} {
		if got := tt.p.SNATLink(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.p, got, tt.want)
		}
	}
}
