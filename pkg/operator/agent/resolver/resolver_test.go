package resolver

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestRecords: the next question after a change of a record knows of it, whatever became of the directory meanwhile.
func TestRecords(t *testing.T) {
	r := withRecords(t)
	answers := func(name string) int {
		t.Helper()
		a := ask(r, name+".dns.podman.", dns.TypeA)
		if a.Rcode == dns.RcodeSuccess && len(a.Answer) == 0 {
			t.Errorf("%s: no address", name)
		}
		return len(a.Answer)
	}
	dir := r.watch.dir
	late := plugin.Key{Network: "demo", ContainerID: "late", IfName: "eth0"}
	for i := range 100 {
		if n := answers("late"); n != 0 {
			t.Fatalf("%d: %d addresses before there is a record", i, n)
		}
		write(t, dir, late, "late", "10.88.0.9")
		if n := answers("late"); n != 1 {
			t.Fatalf("%d: %d addresses", i, n)
		}
		if err := os.Remove(filepath.Join(dir, (&names.Record{Key: late}).FileName())); err != nil {
			t.Fatal(err)
		}
	}
	if n := answers("web"); n != 2 {
		t.Errorf("of two containers there are %d addresses", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "stray"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := answers("web"); n != 2 {
		t.Errorf("beside files that are no records there are %d addresses", n)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if a := ask(r, "web.", dns.TypeA); a.Rcode != dns.RcodeRefused {
		t.Errorf("without records: %v", a)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 5000 { // more than the kernel's queue may have room for
		write(t, dir, plugin.Key{Network: "demo", ContainerID: fmt.Sprint(i), IfName: "eth0"}, fmt.Sprint("c", i), "10.88.0.2")
	}
	if n := answers("c4999"); n != 1 {
		t.Errorf("after many changes: %d addresses", n)
	}
}

// TestRotates: the addresses of several containers of one name come in any order.
func TestRotates(t *testing.T) {
	r := withRecords(t)
	seen := map[string]bool{}
	for range 200 {
		seen[ask(r, "web.", dns.TypeA).Answer[0].(*dns.A).A.String()] = true
	}
	if len(seen) != 2 {
		t.Errorf("first is always %v", seen)
	}
}

// TestNewerAsker: of two containers that have one address it is the newer that asks, and the networks of the other are none of its.
func TestNewerAsker(t *testing.T) {
	table := newTable()
	gateway, a := netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("10.88.0.2")
	record := func(network, id string, since int) {
		r := &names.Record{Key: plugin.Key{Network: network, ContainerID: id, IfName: "eth0"}, Names: []string{id}, Addresses: []netip.Addr{a}, Gateways: []netip.Addr{gateway}}
		r.Since = r.Since.AddDate(since, 0, 0)
		table.put(network+id, r)
	}
	record("old", "ended", 1)
	record("new", "alive", 2)
	if is := table.asker(a, gateway); is == nil || !slices.Equal(is.networks, []string{"new"}) || is.record != nil {
		t.Errorf("it is %+v", is)
	}
	if is := table.asker(a, netip.MustParseAddr("10.99.0.1")); is != nil {
		t.Errorf("at another gateway it is %+v", is)
	}
	table.put("newalive", nil)
	table.put("oldended", nil)
	if len(table.index)+len(table.files) > 0 {
		t.Errorf("left: %v", table.index)
	}
}

// TestShareOfAddresses: a container has a number of addresses opened at a time, and those whose time is over count no more.
func TestShareOfAddresses(t *testing.T) {
	r := withRecords(t)
	a := &asker{opened: opened{}}
	open := func(from, count int, long time.Duration) bool {
		var list []nft.Opening
		for i := range count {
			list = append(list, nft.Opening{Addr: netip.AddrFrom4([4]byte{198, 51, byte((from + i) >> 8), byte(from + i)}), For: long})
		}
		return r.hasShare(a, list)
	}
	if !open(0, mostOpened, -time.Second) || !open(5000, mostOpened, time.Hour) {
		t.Error("it has less than its share")
	}
	if open(0, 1, time.Hour) {
		t.Error("it has more than its share")
	}
	if !open(5000, 10, time.Hour) {
		t.Error("what is open can't stay so")
	}
}

func TestShares(t *testing.T) {
	s := &shares{most: 3, mostOf: 2}
	a, b, c := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("10.88.0.3"), netip.MustParseAddr("10.88.0.4")
	var got []bool
	for _, x := range []netip.Addr{a, a, a, b, c} {
		got = append(got, s.take(x.String()))
	}
	if !slices.Equal(got, []bool{true, true, false, true, false}) {
		t.Errorf("taken: %v", got)
	}
	s.giveBack(a.String())
	if !s.take(c.String()) {
		t.Error("what was given back can't be taken")
	}
	for _, x := range []netip.Addr{a, b, c} {
		s.giveBack(x.String())
	}
	if s.all != 0 || len(s.of) != 0 {
		t.Errorf("left: %+v", s.of)
	}
}
