package link

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	field "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestBridge(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	host.bridge(t, "br0")
	if err := host.CreateBridge("br-down0123456", [6]byte{2, 0, 0, 0, 0, 7}, 0); err != nil {
		t.Fatal(err)
	}
	wire(t, host, container)
	for name, glanced := range map[string]bool{"br0": true, "br-down0123456": true, "lo": false, "veth00000001": false} {
		want, err := host.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		_, ok := host.glance(name)
		got, err := host.Bridge(name)
		if err != nil || ok != glanced {
			t.Errorf("%s: %v, known at a glance: %v, want %v", name, err, ok, glanced)
			continue
		}
		if got.Name != want.Name || got.Index != want.Index || got.Kind != want.Kind || got.MAC != want.MAC || got.Up() != want.Up() {
			t.Errorf("Bridge = %+v, ByName %+v", got, want)
		}
	}
	for _, name := range []string{"none", strings.Repeat("x", unix.IFNAMSIZ), strings.Repeat("x", 100)} {
		if l, err := host.Bridge(name); err == nil {
			t.Errorf("Bridge(%s) = %+v", name, l)
		}
	}
	if _, err := host.Bridge("none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such link: %v, want ErrNotFound", err)
	}
}

// The flag is what was asked for, by whatever message.
func TestBridgePromiscuous(t *testing.T) {
	s := newSpace(t)
	index := s.bridge(t, "br0")
	for _, on := range []bool{true, false} {
		if err := s.SetFlag(index, unix.IFF_PROMISC, on); err != nil {
			t.Fatal(err)
		}
		l, err := s.Bridge("br0")
		if err != nil || l.Flags&unix.IFF_PROMISC != 0 != on {
			t.Errorf("Bridge = %+v, %v; want promiscuous %v", l, err, on)
		}
	}
}

func BenchmarkBridge(b *testing.B) {
	s := newSpace(b)
	s.bridge(b, "br0")
	for name, look := range map[string]func(string) (*Link, error){"Bridge": s.Bridge, "ByName": s.ByName} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := look("br0"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestWelcome(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	bridge := host.bridge(t, "br0")
	pair, err := host.CreateVeth(demoVeth(bridge), container.ns)
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := netip.MustParsePrefix("10.88.0.1/16"), netip.MustParsePrefix("fd00::1/64")
	if err := host.AddAddress(bridge, Address{Prefix: v4}); err != nil {
		t.Fatal(err)
	}
	known := []netip.Addr{netip.MustParseAddr("10.88.0.9"), netip.MustParseAddr("fd00::9")}
	for _, a := range known {
		err := host.field.NeighAdd(&field.Neigh{LinkIndex: bridge, IP: a.AsSlice(), State: field.NUD_PERMANENT, HardwareAddr: []byte{2, 0, 0, 0, 0, 9}})
		if err != nil {
			t.Fatal(err)
		}
	}
	arrival := Arrival{
		Gateways:  []Address{{Prefix: v4}, {Prefix: v6, Flags: unix.IFA_F_NODAD}},
		Addresses: append(known, netip.MustParseAddr("10.88.0.10")), // of the last nothing is known
		Port:      pair.Host,
	}
	for round, v6Added := range []bool{true, false} {
		sends := host.Sends
		added, port, err := host.Welcome(bridge, arrival)
		if err != nil {
			t.Fatal(err)
		}
		if len(added) != 2 || added[0] || added[1] != v6Added {
			t.Errorf("round %d: added %v, want [false %v]", round, added, v6Added)
		}
		if port == nil || port.Index != pair.Host || port.Master != bridge {
			t.Errorf("round %d: port %+v", round, port)
		}
		if n := host.Sends - sends; n != 1 {
			t.Errorf("round %d: %d messages, want one", round, n)
		}
	}
	for _, p := range []netip.Prefix{v4, v6} {
		if fieldAddress(t, host, p) == nil {
			t.Errorf("%s is not there", p)
		}
	}
	left, err := host.field.NeighList(bridge, field.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range left {
		if n.State == field.NUD_PERMANENT {
			t.Errorf("neighbour %s is left", n.IP)
		}
	}
}

func TestWelcomeFails(t *testing.T) {
	host := newSpace(t)
	bridge := host.bridge(t, "br0")
	tests := map[string]struct {
		bridge  int
		arrival Arrival
		want    error
		says    string
	}{
		"no such bridge": {4711, Arrival{Gateways: []Address{{Prefix: netip.MustParsePrefix("10.88.0.1/16")}}, Port: bridge}, ErrNotFound, "add address 10.88.0.1/16 to link 4711"},
		"no such port":   {bridge, Arrival{Port: 4711}, ErrNotFound, "look up link 4711"},
		"multicast":      {bridge, Arrival{Gateways: []Address{{Prefix: netip.MustParsePrefix("ff02::1/64")}}, Port: bridge}, unix.EADDRNOTAVAIL, "ff02::1"},
	}
	for name, tt := range tests {
		_, _, err := host.Welcome(tt.bridge, tt.arrival)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, tt.want, tt.says)
		}
	}
}
