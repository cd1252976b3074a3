package watch

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// fakeLinks answers that link 9 is not there, that namespace 8 is not, and that links with an even index are up.
func fakeLinks(t testing.TB) *links {
	conn := nltest.Dial(func(requests []netlink.Message) ([]netlink.Message, error) {
		m := requests[0]
		index := number(m.Data[4:])
		namespace := attribute(m.Data, unix.SizeofIfInfomsg, unix.IFLA_TARGET_NETNSID)
		switch {
		case index == 9:
			return nltest.Error(int(unix.ENODEV), requests)
		case namespace != nil && number(namespace) == 8:
			return nltest.Error(int(unix.EINVAL), requests)
		case index == 7:
			return nltest.Error(int(unix.EPERM), requests)
		}
		data := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(data[8:], uint32(index+1)&unix.IFF_UP)
		name, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.IFLA_IFNAME, Data: fmt.Appendf(nil, "l%d\x00", index)}})
		return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_NEWLINK, Sequence: m.Header.Sequence, PID: m.Header.PID}, Data: append(data, name...)}}, nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return &links{conn, hostNumber}
}

func TestBurst(t *testing.T) {
	at := func(nsid int, index int32) linkID { return linkID{nsid, index} }
	host := func(index int32) linkID { return at(hostNumber, index) }
	address := func(p linkID) event { return event{change: lost, linkID: p, what: "address 10.1.0.1/16"} }
	bridge := event{change: gone, linkID: host(20), name: "demo0", kind: "bridge", carries: true}
	port := event{change: unplugged, linkID: host(2), master: 20}
	for _, test := range []struct {
		name   string
		events []event
		want   []string
	}{
		{"an address", []event{address(host(2))}, []string{"address 10.1.0.1/16 of l2 was deleted"}},
		{"several things of one link", []event{address(host(2)), {change: down, linkID: host(2)}, address(host(2))}, []string{"address 10.1.0.1/16 of l2 was deleted, and more"}},
		{"a link that is gone by then", []event{address(host(9))}, nil},
		{"a link that is told to be gone", []event{address(host(2)), {change: gone, linkID: host(2), kind: "veth"}}, nil},
		{"another link", []event{address(host(2)), {change: gone, linkID: host(4), kind: "veth"}}, []string{"address 10.1.0.1/16 of l2 was deleted"}},
		{"the link of that index elsewhere", []event{address(host(2)), {change: gone, linkID: at(1, 2), kind: "veth"}}, []string{"address 10.1.0.1/16 of l2 was deleted"}},
		{"down", []event{{change: down, linkID: host(1)}}, []string{"l1 was set down"}},
		{"down and up", []event{{change: down, linkID: host(2)}}, nil},
		{"down and up, without its address", []event{{change: down, linkID: host(2)}, address(host(2))}, []string{"l2 was set down, and more"}},
		{"a port", []event{port}, []string{"l2 was taken out of its bridge"}},
		{"a bridge with a port", []event{port, bridge}, []string{"bridge demo0 was deleted"}},
		{"a bridge, and more of the port", []event{port, address(host(2)), bridge}, []string{"bridge demo0 was deleted", "l2 was taken out of its bridge, and more"}},
		{"another bridge", []event{{change: unplugged, linkID: host(2), master: 21}, bridge}, []string{"bridge demo0 was deleted", "l2 was taken out of its bridge"}},
		{"in a container", []event{address(at(5, 2))}, []string{"address 10.1.0.1/16 of l2 in namespace 5 was deleted"}},
		{"of a container", []event{{change: lost, linkID: at(5, 0), what: "rule for routes"}}, []string{"rule for routes of namespace 5 was deleted"}},
		{"of a container that is detached", []event{{change: lost, linkID: at(5, 0), what: "rule for routes"}, {change: gone, linkID: at(5, 2)}}, nil},
		{"in a namespace that is gone by then", []event{address(at(8, 2))}, nil},
		{"in a namespace that has ended", []event{address(at(5, 2)), address(at(6, 2)), {change: ended, linkID: at(5, 0)}},
			[]string{"address 10.1.0.1/16 of l2 in namespace 6 was deleted", "namespace 5 has ended"}},
		{"a VRF in a namespace that has ended", []event{{change: gone, linkID: at(5, 3), kind: "vrf", carries: true}, {change: gone, linkID: at(6, 3), name: "vrf0", kind: "vrf", carries: true},
			{change: ended, linkID: at(5, 0)}}, []string{"vrf vrf0 in namespace 6 was deleted", "namespace 5 has ended"}},
		{"forwarding", []event{{change: forwarding, what: "IPv4"}, {change: forwarding, what: "IPv4"}}, []string{"forwarding of IPv4 was turned off"}},
		{"nothing can be found out", []event{address(host(7))}, []string{"address 10.1.0.1/16 of link 7 was deleted"}},
	} {
		b := newBurst()
		for _, e := range test.events {
			b.addEvent(e, "")
		}
		var got []string
		for _, h := range b.hits(fakeLinks(t)) {
			got = append(got, h.What)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, not %q", test.name, got, test.want)
		}
	}
}

func TestBurstIsBounded(t *testing.T) {
	b := newBurst()
	for i := range int32(2 * mostPlaces) {
		b.addEvent(event{change: lost, linkID: linkID{hostNumber, 10 + 2*i}, what: "address"}, "")
		b.addEvent(event{change: gone, linkID: linkID{hostNumber, 11 + 2*i}, name: "br", kind: "bridge", carries: true}, "")
		b.addEvent(event{change: ended, linkID: linkID{nsid: int(i)}}, "")
		b.addFilter(fmt.Sprint(i), Hit{What: fmt.Sprint(i)})
	}
	if len(b.losses) > mostPlaces || len(b.gone) > mostPlaces || len(b.filter) > mostHits || len(b.ended) > mostHits {
		t.Errorf("%d losses, %d links, %d of the packet filter, %d namespaces", len(b.losses), len(b.gone), len(b.filter), len(b.ended))
	}
	hits := b.hits(fakeLinks(t))
	if len(hits) != 1+mostHits || hits[0].Kind != Filter || hits[1].Kind != Ended {
		t.Errorf("%d hits, the first %+v", len(hits), hits[0])
	}
}

func TestManyHitsAreOne(t *testing.T) {
	b := newBurst()
	for i := range int32(mostHits + 2) {
		b.addEvent(event{change: lost, linkID: linkID{hostNumber, 10 + i}, what: "address"}, "")
	}
	if hits := b.hits(fakeLinks(t)); len(hits) != 1 || hits[0].Kind != Any {
		t.Errorf("%d hits, the first %+v", len(hits), hits[0])
	}
}

// TestMuchOfOneContainer: what a container does, however much, is a hit of its namespace, and leaves room for others.
func TestMuchOfOneContainer(t *testing.T) {
	b := newBurst()
	for i := range int32(2 * mostPlaces) {
		b.addEvent(event{change: lost, linkID: linkID{5, 10 + i}, what: "address"}, "")
		b.addEvent(event{change: gone, linkID: linkID{5, 10 + i}, name: "vrf", kind: "vrf", carries: true}, "")
	}
	b.addEvent(event{change: lost, linkID: linkID{hostNumber, 2}, what: "address"}, "")
	hits := b.hits(fakeLinks(t))
	if len(hits) > 2*mostInside {
		t.Fatalf("%d hits", len(hits))
	}
	links := 0
	for _, h := range hits {
		if h.Kind == Link {
			links++
		} else if h.Kind != Inside || h.NSID != 5 {
			t.Errorf("%+v", h)
		}
	}
	if links != 1 {
		t.Errorf("%d hits of the host's link", links)
	}
}

func TestLose(t *testing.T) {
	w := &Watch{burst: newBurst(), news: make(chan struct{}, 1)}
	w.lose()
	hits := w.popBurst().hits(fakeLinks(t))
	if len(hits) != 2 || hits[0].Kind != Any || hits[1] != (Hit{Kind: Ended, NSID: -1, What: "namespaces may have ended"}) {
		t.Errorf("%+v", hits)
	}
}

func TestHitOf(t *testing.T) {
	if h := hitOf(linkID{hostNumber, 2}, "demo0", "", " was set down", "ip (pid 1)"); h != (Hit{Kind: Link, Link: "demo0", What: "demo0 was set down", By: "ip (pid 1)"}) {
		t.Errorf("%+v", h)
	}
	// Numbers of processes are the container's own, and names are its choice.
	if h := hitOf(linkID{3, 2}, "e\x1b", "", " was set down", "ip (pid 1)"); h != (Hit{Kind: Inside, NSID: 3, What: "e? in namespace 3 was set down"}) {
		t.Errorf("%+v", h)
	}
}
