package trace

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
)

// headerOfIP begins a packet from 10.88.0.2 to 192.0.2.254.
func headerOfIP(protocol byte) []byte {
	return []byte{0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 88, 0, 2, 192, 0, 2, 254}
}

func TestHeader(t *testing.T) {
	from, to := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("192.0.2.254")
	arp := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 88, 0, 2, 0, 0, 0, 0, 0, 0, 10, 88, 0, 1}
	ethernet := append(make([]byte, 12), 8, 6)
	v6 := append(append([]byte{0x60, 0, 0, 0, 0, 8, 58, 64}, netip.MustParseAddr("fd00:88::2").AsSlice()...), netip.MustParseAddr("2001:db8::1").AsSlice()...)
	for name, c := range map[string]struct {
		family                   string
		link, network, transport []byte
		want                     Header
	}{
		"tcp":             {"inet", nil, headerOfIP(6), []byte{0x9c, 0x40, 1, 187, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2}, Header{From: from, To: to, Protocol: 6, FromPort: 40000, ToPort: 443, Flags: 2}},
		"cut off":         {"inet", nil, headerOfIP(6), []byte{0x9c}, Header{From: from, To: to, Protocol: 6}},
		"nothing":         {"inet", nil, nil, nil, Header{}},
		"ping":            {"netdev", nil, headerOfIP(1), []byte{8, 0, 0, 0, 0, 7, 0, 1}, Header{From: from, To: to, Protocol: 1, Type: 8, FromPort: 7, ToPort: 7}},
		"too large":       {"inet", nil, headerOfIP(1), []byte{3, 4, 0, 0, 0, 0, 5, 120}, Header{From: from, To: to, Protocol: 1, Type: 3, Code: 4, MTU: 1400}},
		"ping of IPv6":    {"inet", nil, v6, []byte{128, 0, 0, 0, 0, 7, 0, 1}, Header{From: netip.MustParseAddr("fd00:88::2"), To: netip.MustParseAddr("2001:db8::1"), Protocol: 58, Type: 128, FromPort: 7, ToPort: 7}},
		"ARP":             {"arp", nil, arp, nil, Header{About: netip.MustParseAddr("10.88.0.1"), Asks: true}},
		"ARP on a bridge": {"bridge", ethernet, arp, nil, Header{About: netip.MustParseAddr("10.88.0.1"), Asks: true}},
	} {
		if got := headerOf(c.family, c.link, c.network, c.transport); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// FuzzParse reads whatever a kernel may send.
func FuzzParse(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 8, 0, 1, 0, 'm', 'i', 'n', 'e'})
	f.Fuzz(func(_ *testing.T, data []byte) {
		m := netlink.Message{Data: data}
		m.Header.Type = nftMessage(0x11) // NFT_MSG_TRACE
		parse(m)
	})
}
