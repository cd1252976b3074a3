package link

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	field "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routed is a container with eth0, 10.88.0.2/16 and fd00::2/64.
func routed(t *testing.T) (*space, int) {
	t.Helper()
	host, container := newSpace(t), newSpace(t)
	eth0 := wire(t, host, container).Container
	for _, text := range []string{"10.88.0.2/16", "fd00::2/64"} {
		if err := container.AddAddress(eth0, Address{Prefix: netip.MustParsePrefix(text), Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatal(err)
		}
	}
	return container, eth0
}

// lastPriority is a variable since as a constant it is no int of 32 bits.
var lastPriority uint32 = math.MaxUint32

var routes = []Route{
	{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.88.0.1")},
	{Dst: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fd00::1")},
	{Dst: netip.MustParsePrefix("192.0.2.7/24")}, // bits behind the prefix
	{Dst: netip.MustParsePrefix("192.0.3.0/24"), Scope: unix.RT_SCOPE_LINK, Priority: 7},
	{Dst: netip.MustParsePrefix("192.0.4.0/24"), Gateway: netip.MustParseAddr("10.88.0.9"), Table: 1000, MTU: 1400, AdvMSS: 1360},
	{Dst: netip.MustParsePrefix("2001:db8::/32"), Gateway: netip.MustParseAddr("fd00::9"), Table: 100, Priority: int(lastPriority), MTU: 1280},
}

func TestAddRoute(t *testing.T) {
	container, eth0 := routed(t)
	for _, r := range routes {
		if err := container.AddRoute(eth0, r); err != nil {
			t.Errorf("add %s: %v", r, err)
			continue
		}
		got := fieldRoute(t, container, r)
		if got == nil {
			t.Errorf("%s is not there", r)
			continue
		}
		if got.LinkIndex != eth0 || got.MTU != r.MTU || got.AdvMSS != r.AdvMSS || got.Protocol != unix.RTPROT_BOOT ||
			r.Gateway.IsValid() && got.Gw.String() != r.Gateway.String() || !r.Gateway.IsValid() && got.Gw != nil ||
			r.Dst.Addr().Is4() && int(got.Scope) != r.Scope || r.Priority != 0 && uint32(got.Priority) != uint32(r.Priority) {
			t.Errorf("%s became %+v", r, got)
		}
		if err := container.AddRoute(eth0, r); !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), r.String()) {
			t.Errorf("add %s again: %v, want EEXIST", r, err)
		}
	}
}

func fieldRoute(t *testing.T, s *space, r Route) *field.Route {
	t.Helper()
	filter := &field.Route{Table: r.Table}
	if r.Table == 0 {
		filter.Table = unix.RT_TABLE_MAIN
	}
	list, err := s.field.RouteListFiltered(int(familyOf(r.Dst.Addr())), filter, field.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range list {
		if got.Dst.String() == r.Dst.Masked().String() {
			return &got
		}
	}
	return nil
}

// Addresses turns strict checking on, which makes the kernel read questions
// otherwise: the order of the calls must not matter.
func TestRoutes(t *testing.T) {
	for _, strict := range []bool{false, true} {
		container, eth0 := routed(t)
		if strict {
			if _, err := container.Addresses(eth0); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range routes {
			if err := container.AddRoute(eth0, r); err != nil {
				t.Fatal(err)
			}
		}
		list, err := container.Routes(eth0)
		if err != nil {
			t.Fatal(err)
		}
		has := func(want Route) bool {
			for _, r := range list {
				if r == want {
					return true
				}
			}
			return false
		}
		for _, r := range routes {
			r.Dst = r.Dst.Masked()
			if r.Table == 0 {
				r.Table = unix.RT_TABLE_MAIN
			}
			if r.Dst.Addr().Is6() && r.Priority == 0 {
				r.Priority = 1024 // the kernel's choice
			}
			if !has(r) {
				t.Errorf("strict %v: %+v is not in %+v", strict, r, list)
			}
		}
		connected := []Route{
			{Dst: netip.MustParsePrefix("10.88.0.0/16"), Table: unix.RT_TABLE_MAIN, Scope: unix.RT_SCOPE_LINK},
			{Dst: netip.MustParsePrefix("fd00::/64"), Table: unix.RT_TABLE_MAIN, Priority: 256},
		}
		for _, r := range connected {
			if !has(r) {
				t.Errorf("strict %v: the kernel's route %+v is not in %+v", strict, r, list)
			}
		}
		if list, err := container.Routes(4711); len(list) != 0 || err != nil {
			t.Errorf("strict %v: routes of no link: %v, %v", strict, list, err)
		}
	}
}

func TestLinkTo(t *testing.T) {
	for _, strict := range []bool{false, true} {
		container, eth0 := routed(t)
		if strict {
			if _, err := container.Addresses(eth0); err != nil {
				t.Fatal(err)
			}
		}
		lo, err := container.ByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		if err := container.SetUp(lo.Index); err != nil {
			t.Fatal(err)
		}
		for address, want := range map[string]int{
			"10.88.7.7": eth0, "fd00::7": eth0, "127.0.0.1": lo.Index, "::1": lo.Index, "10.88.0.2": lo.Index,
		} {
			if got, err := container.LinkTo(netip.MustParseAddr(address)); got != want || err != nil {
				t.Errorf("strict %v: LinkTo(%s) = %d, %v; want %d", strict, address, got, err, want)
			}
		}
		for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
			if got, err := container.LinkTo(netip.MustParseAddr(address)); !errors.Is(err, unix.ENETUNREACH) || got != 0 {
				t.Errorf("strict %v: LinkTo(%s) = %d, %v; want ENETUNREACH", strict, address, got, err)
			}
		}
	}
}

func TestConfigure(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	pair, err := host.CreateVeth(Veth{Host: "veth00000001", HostMAC: [6]byte{2, 0, 0, 0, 0, 1}, Container: "eth0", ContainerMAC: [6]byte{2, 0, 0, 0, 0, 2}}, container.ns)
	if err != nil {
		t.Fatal(err)
	}
	sends := container.Sends
	setup := Setup{
		Addresses: []Address{
			{Prefix: netip.MustParsePrefix("10.88.0.2/16")},
			{Prefix: netip.MustParsePrefix("fd00::2/64"), Flags: unix.IFA_F_NODAD},
		},
		Routes:   routes,
		Announce: true,
	}
	if err := container.Configure(pair.Container, setup); err != nil {
		t.Fatal(err)
	}
	if n := container.Sends - sends; n != 1 {
		t.Errorf("%d sends, want 1", n)
	}
	l, err := container.ByIndex(pair.Container)
	if err != nil || !l.Up() {
		t.Errorf("link %+v, %v; want it up", l, err)
	}
	for _, a := range setup.Addresses {
		if fieldAddress(t, container, a.Prefix) == nil {
			t.Errorf("%s is not there", a.Prefix)
		}
	}
	for _, r := range routes {
		if fieldRoute(t, container, r) == nil {
			t.Errorf("%s is not there", r)
		}
	}
	if err := container.Configure(pair.Container, Setup{Down: true}); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
	err = container.Configure(pair.Container, Setup{Addresses: setup.Addresses[:1]})
	if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "10.88.0.2/16") {
		t.Errorf("again: %v, want EEXIST that names the address", err)
	}
}

func TestWaitUntil(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	pair := wire(t, host, container)
	if err := container.SetDown(pair.Container); err != nil {
		t.Fatal(err)
	}
	other, err := OpenIn(container.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	asked, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		<-asked
		for range 100 { // noise: changes of another link, more than a buffer should need
			_ = other.SetUp(1)
			_ = other.SetDown(1)
		}
		_ = other.SetUp(pair.Container)
	}()
	once := false
	err = host.ns.Run(func() error {
		l, err := host.WaitUntil(pair.Host, 30*time.Second, func(l *Link) bool {
			if !once {
				once = true
				close(asked)
			}
			return l.OperState == OperUp
		})
		if err == nil && l.OperState != OperUp {
			t.Errorf("WaitUntil returned %+v", l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestWaitUntilHearsThroughNoise(t *testing.T) {
	s := newSpace(t)
	index := s.bridge(t, "br0")
	noisy := s.bridge(t, "br1")
	other, err := OpenIn(s.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	calls := 0
	err = s.ns.Run(func() error {
		l, err := s.WaitUntil(index, 30*time.Second, func(l *Link) bool {
			calls++
			if calls == 2 { // the wait has joined: overflow what it hears, then do what it waits for
				for i := range 3000 {
					if err := other.SetMTU(noisy, 1400+i%2); err != nil {
						t.Error(err)
					}
				}
				if err := other.SetMTU(index, 1234); err != nil {
					t.Error(err)
				}
				return false
			}
			return l.MTU == 1234
		})
		if l != nil && l.MTU != 1234 {
			t.Errorf("WaitUntil returned %+v", l)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWaitUntilGivesUp(t *testing.T) {
	s := newSpace(t)
	index := s.bridge(t, "br0")
	err := s.ns.Run(func() error {
		l, err := s.WaitUntil(index, time.Millisecond, func(*Link) bool { return false })
		if l == nil || l.Index != index {
			t.Errorf("WaitUntil returned %+v, want the link as last seen", l)
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "br0: not ready after 1ms") {
		t.Errorf("error %v", err)
	}
	err = s.ns.Run(func() error {
		_, err := s.WaitUntil(4711, time.Second, func(*Link) bool { return true })
		return err
	})
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("no link: %v, want ErrNotFound", err)
	}
}
