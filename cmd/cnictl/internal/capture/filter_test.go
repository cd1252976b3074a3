package capture

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/bpf"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestFilter captures what passes the loopback link, with the kernel as the judge of the filters.
func TestFilter(t *testing.T) {
	four, six, other := netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("::1"), netip.MustParseAddr("192.0.2.1")
	for _, test := range []struct {
		name   string
		filter Filter
		want   string // of udp4 udp6 tcp4 tcp6 icmp4 icmp6
	}{
		{"everything", Filter{}, "udp4 udp6 tcp4 tcp6 icmp4 icmp6"},
		{"protocol", Filter{Protocols: []Protocol{UDP}}, "udp4 udp6"},
		{"two protocols", Filter{Protocols: []Protocol{TCP, ICMP}}, "tcp4 tcp6 icmp4 icmp6"},
		{"address", Filter{Addresses: []netip.Addr{four}}, "udp4 tcp4 icmp4"},
		{"address of IPv6", Filter{Addresses: []netip.Addr{six}}, "udp6 tcp6 icmp6"},
		{"several addresses", Filter{Addresses: []netip.Addr{other, six, four}}, "udp4 udp6 tcp4 tcp6 icmp4 icmp6"},
		{"nobody's address", Filter{Addresses: []netip.Addr{other}}, ""},
		{"port", Filter{Ports: []uint16{4000}}, "udp4 udp6"},
		{"ports", Filter{Ports: []uint16{1, 5000, 4000}}, "udp4 udp6 tcp4 tcp6"},
		{"port and protocol", Filter{Ports: []uint16{4000}, Protocols: []Protocol{TCP}}, ""},
		{"port, protocol and address", Filter{Ports: []uint16{5000}, Protocols: []Protocol{TCP}, Addresses: []netip.Addr{six, other}}, "tcp6"},
		{"arp", Filter{Protocols: []Protocol{ARP}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			filter, err := test.filter.Compile()
			if err != nil {
				t.Fatal(err)
			}
			host := netlab.NewHost(t)
			var seen []string
			host.Do(func() { seen = kindsSeen(t, host, filter) })
			if got := strings.Join(seen, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// kindsSeen has packets of six kinds pass the loopback link of the host, on which the calling thread is, and returns which ones were
// captured.
func kindsSeen(t *testing.T, host *netlab.Host, filter []bpf.RawInstruction) (kinds []string) {
	t.Helper()
	addresses := []string{"127.0.0.9", "[::1]"}
	for _, a := range addresses {
		host.ServeUDP(t, a+":4000")
		host.ServeTCP(t, a+":5000")
	}
	s, err := Listen(AllLinks, filter, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, a := range addresses {
		_, err := host.DialUDP(a+":4000", netlab.Patience)
		_, err2 := host.DialTCP(a+":5000", netlab.Patience)
		if err := errors.Join(err, err2, host.Ping(strings.Trim(a, "[]"), netlab.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for {
		f, err := s.Next()
		if errors.Is(err, ErrStopped) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !f.Ethernet || f.Length != len(f.Data) {
			t.Errorf("frame %+v", f)
		}
		seen[kindOf(f.Packet())] = true
	}
	if s.Dropped > 0 {
		t.Fatalf("%d packets dropped", s.Dropped)
	}
	for _, kind := range []string{"udp4", "udp6", "tcp4", "tcp6", "icmp4", "icmp6"} {
		if seen[kind] {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func kindOf(packet gopacket.Packet) string {
	suffix := "6"
	if packet.Layer(layers.LayerTypeIPv4) != nil {
		suffix = "4"
	}
	for name, layer := range map[string]gopacket.LayerType{"udp": layers.LayerTypeUDP, "tcp": layers.LayerTypeTCP, "icmp": layers.LayerTypeICMPv4} {
		if packet.Layer(layer) != nil {
			return name + suffix
		}
	}
	if packet.Layer(layers.LayerTypeICMPv6) != nil {
		return "icmp6"
	}
	return packet.String()
}
