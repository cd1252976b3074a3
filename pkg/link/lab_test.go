package link

import (
	"testing"

	field "github.com/vishvananda/netlink"
	fieldns "github.com/vishvananda/netns"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/netns/netnstest"
)

// space is a network namespace, seen through this package and through the
// library that the field uses.
type space struct {
	ns *netns.NS
	*Conn
	field *field.Handle
}

func newSpace(t testing.TB) *space {
	t.Helper()
	ns := netnstest.New(t)
	c, err := OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	h, err := field.NewHandleAt(fieldns.NsHandle(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return &space{ns, c, h}
}

// link returns the field's view of a link.
func (s *space) link(t testing.TB, name string) field.Link {
	t.Helper()
	l, err := s.field.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return l
}

// bridge makes a bridge that is up, and returns its index.
func (s *space) bridge(t testing.TB, name string) int {
	t.Helper()
	if err := s.CreateBridge(name, [6]byte{2, 0, 0, 0, 0, 0xb0}, 0); err != nil {
		t.Fatal(err)
	}
	index := s.link(t, name).Attrs().Index
	if err := s.SetUp(index); err != nil {
		t.Fatal(err)
	}
	return index
}

// wire connects host and container by a veth pair with both ends up.
func wire(t testing.TB, host, container *space) Pair {
	t.Helper()
	pair, err := host.CreateVeth(Veth{
		Host: "veth00000001", HostMAC: [6]byte{2, 0, 0, 0, 0, 1}, Container: "eth0", ContainerMAC: [6]byte{2, 0, 0, 0, 0, 2},
	}, container.ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := container.SetUp(pair.Container); err != nil {
		t.Fatal(err)
	}
	return pair
}
