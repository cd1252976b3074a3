package link

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	field "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestAddAddress(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	eth0 := wire(t, host, container).Container
	tests := []struct {
		address   Address
		broadcast string
	}{
		{Address{Prefix: netip.MustParsePrefix("10.88.0.2/16")}, "10.88.255.255"},
		{Address{Prefix: netip.MustParsePrefix("10.89.0.6/30")}, "10.89.0.7"},
		{Address{Prefix: netip.MustParsePrefix("10.90.0.2/31")}, ""},
		{Address{Prefix: netip.MustParsePrefix("10.91.0.2/32")}, ""},
		{Address{Prefix: netip.MustParsePrefix("fd00::2/64"), Flags: unix.IFA_F_NODAD}, ""},
		{Address{Prefix: netip.MustParsePrefix("fd01::2/128"), Flags: unix.IFA_F_NODAD}, ""},
	}
	for _, tt := range tests {
		if err := container.AddAddress(eth0, tt.address); err != nil {
			t.Errorf("add %s: %v", tt.address.Prefix, err)
			continue
		}
		a := fieldAddress(t, container, tt.address.Prefix)
		if a == nil {
			t.Errorf("%s is not there", tt.address.Prefix)
			continue
		}
		if got := a.Broadcast.String(); a.Broadcast != nil && got != tt.broadcast || a.Broadcast == nil && tt.broadcast != "" {
			t.Errorf("%s: broadcast %s, want %q", tt.address.Prefix, got, tt.broadcast)
		}
		if a.Flags&unix.IFA_F_TENTATIVE != 0 || a.Scope != unix.RT_SCOPE_UNIVERSE {
			t.Errorf("%s: flags %#x, scope %d; want an address that works at once", tt.address.Prefix, a.Flags, a.Scope)
		}
		err := container.AddAddress(eth0, tt.address)
		if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), tt.address.Prefix.String()) {
			t.Errorf("add %s again: %v, want EEXIST", tt.address.Prefix, err)
		}
	}
}

func fieldAddress(t *testing.T, s *space, p netip.Prefix) *field.Addr {
	t.Helper()
	list, err := s.field.AddrList(nil, field.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if a.IPNet.String() == p.String() {
			return &a
		}
	}
	return nil
}

func TestAddresses(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	eth0 := wire(t, host, container).Container
	lo, err := container.ByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := container.SetUp(lo.Index); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"10.88.0.2/16", "fd00::2/64"} {
		if err := container.AddAddress(eth0, Address{Prefix: netip.MustParsePrefix(text), Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := container.Addresses(eth0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Address{}
	for _, a := range list {
		found[a.Prefix.String()] = a
	}
	if a := found["10.88.0.2/16"]; a.Host || a.Flags&unix.IFA_F_PERMANENT == 0 {
		t.Errorf("10.88.0.2/16: %+v", a)
	}
	if a := found["fd00::2/64"]; a.Host || a.Flags&unix.IFA_F_NODAD == 0 {
		t.Errorf("fd00::2/64: %+v", a)
	}
	linkLocal := 0
	for _, a := range list {
		if a.Prefix.Addr().IsLinkLocalUnicast() && a.Host {
			linkLocal++
		}
	}
	if linkLocal != 1 || len(list) != 3 {
		t.Errorf("addresses %+v, want the two and a link-local one", list)
	}
	loopback, err := container.Addresses(lo.Index)
	if err != nil || len(loopback) != 2 || !loopback[0].Host || !loopback[1].Host {
		t.Errorf("addresses of lo: %+v, %v; want 127.0.0.1 and ::1 only", loopback, err)
	}
	if list, err := container.Addresses(4711); !errors.Is(err, unix.ENODEV) {
		t.Errorf("addresses of no link: %v, %v; want ENODEV", list, err)
	}
}

func TestDeleteAddress(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	eth0 := wire(t, host, container).Container
	for _, text := range []string{"10.88.0.2/16", "fd00::2/64"} {
		p := netip.MustParsePrefix(text)
		if err := container.AddAddress(eth0, Address{Prefix: p}); err != nil {
			t.Fatal(err)
		}
		if err := container.DeleteAddress(eth0, p); err != nil {
			t.Errorf("delete %s: %v", p, err)
		}
		if fieldAddress(t, container, p) != nil {
			t.Errorf("%s is left", p)
		}
		if err := container.DeleteAddress(eth0, p); !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Errorf("delete %s again: %v, want EADDRNOTAVAIL", p, err)
		}
	}
}

func TestSettle(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	pair := wire(t, host, container)
	p := netip.MustParsePrefix("fd00::2/64")
	if err := container.AddAddress(pair.Container, Address{Prefix: p}); err != nil {
		t.Fatal(err)
	}
	err := container.ns.Run(func() error {
		failed, err := container.Settle(pair.Container, 30*time.Second)
		if failed.IsValid() {
			t.Errorf("%s failed duplicate address detection", failed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := fieldAddress(t, container, p); a == nil || a.Flags&unix.IFA_F_TENTATIVE != 0 {
		t.Errorf("address %+v is tentative still", a)
	}
}

func TestSettleFindsADuplicate(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	pair := wire(t, host, container)
	p := netip.MustParsePrefix("fd00::2/64")
	if err := host.AddAddress(pair.Host, Address{Prefix: p, Flags: unix.IFA_F_NODAD}); err != nil {
		t.Fatal(err)
	}
	if err := container.AddAddress(pair.Container, Address{Prefix: p}); err != nil {
		t.Fatal(err)
	}
	err := container.ns.Run(func() error {
		failed, err := container.Settle(pair.Container, 30*time.Second)
		if failed != p {
			t.Errorf("Settle = %v, want %s", failed, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSettleGivesUp(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	eth0 := wire(t, host, container).Container
	// Probing starts when there is a carrier, and the other end is down.
	other, err := host.ByName("veth00000001")
	if err != nil {
		t.Fatal(err)
	}
	if err := host.SetDown(other.Index); err != nil {
		t.Fatal(err)
	}
	if err := container.AddAddress(eth0, Address{Prefix: netip.MustParsePrefix("fd00::2/64")}); err != nil {
		t.Fatal(err)
	}
	err = container.ns.Run(func() error {
		_, err := container.Settle(eth0, time.Millisecond)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "tentative") {
		t.Errorf("error %v", err)
	}
}
