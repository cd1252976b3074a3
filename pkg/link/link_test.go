package link

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	field "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestCreateBridge(t *testing.T) {
	s := newSpace(t)
	if err := s.CreateBridge("br0", [6]byte{2, 0, 0, 0, 0, 7}, 1400); err != nil {
		t.Fatal(err)
	}
	b, ok := s.link(t, "br0").(*field.Bridge)
	if !ok || b.HardwareAddr.String() != "02:00:00:00:00:07" || b.MTU != 1400 {
		t.Errorf("bridge %+v", b)
	}
	if err := s.CreateBridge("br0", [6]byte{2, 0, 0, 0, 0, 8}, 0); !errors.Is(err, unix.EEXIST) {
		t.Errorf("second CreateBridge: %v, want EEXIST", err)
	}
	if err := s.CreateBridge("br1", [6]byte{2, 0, 0, 0, 0, 9}, 0); err != nil || s.link(t, "br1").Attrs().MTU != 1500 {
		t.Errorf("without an MTU: %v, %d", err, s.link(t, "br1").Attrs().MTU)
	}
}

// The MAC address of a bridge that was given one does not follow its ports.
func TestBridgeKeepsItsMAC(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	v := demoVeth(host.bridge(t, "br0"))
	v.HostMAC = [6]byte{2, 0, 0, 0, 0, 0} // lower than the bridge's
	if _, err := host.CreateVeth(v, container.ns); err != nil {
		t.Fatal(err)
	}
	if mac := host.link(t, "br0").Attrs().HardwareAddr.String(); mac != "02:00:00:00:00:b0" {
		t.Errorf("the bridge's MAC address is %s", mac)
	}
}

// What this package reads of links is what the field's library reads.
func TestLinksAreReadAsTheFieldReads(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	v := demoVeth(host.bridge(t, "br0"))
	pair, err := host.CreateVeth(v, container.ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := container.SetUp(pair.Container); err != nil {
		t.Fatal(err)
	}
	running(t, container, pair.Container)
	running(t, host, pair.Host)
	running(t, host, v.Master)
	for _, s := range []*space{host, container} {
		want, err := s.field.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d links, want %d", len(got), len(want))
		}
		for i, l := range got {
			same(t, want[i], l)
			byName, err := s.ByName(l.Name)
			if err != nil || *byName != *l {
				t.Errorf("ByName(%s) = %+v, %v; want %+v", l.Name, byName, err, l)
			}
			byIndex, err := s.ByIndex(l.Index)
			if err != nil || *byIndex != *l {
				t.Errorf("ByIndex(%d) = %+v, %v; want %+v", l.Index, byIndex, err, l)
			}
		}
	}
	port, err := host.ByName(v.Host)
	if err != nil || !port.Hairpin || !port.Isolated {
		t.Errorf("port %+v, %v; want hairpin and isolated", port, err)
	}
}

// running waits until the kernel has nothing more to change of a link.
func running(t *testing.T, s *space, index int) {
	t.Helper()
	err := s.ns.Run(func() error {
		_, err := s.WaitUntil(index, 30*time.Second, func(l *Link) bool { return l.OperState == OperUp })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, want field.Link, got *Link) {
	t.Helper()
	w := want.Attrs()
	mac := ""
	if len(w.HardwareAddr) > 0 && w.Name != "lo" {
		mac = w.HardwareAddr.String()
	}
	theirs := fmt.Sprint(w.Index, w.Name, mac, w.MTU, w.TxQLen, w.RawFlags, w.MasterIndex, w.ParentIndex, int(w.OperState), w.Alias)
	ourMAC := MACText(got.MAC)
	if got.Name == "lo" { // has one of zeros, which the library leaves out
		ourMAC = ""
	}
	ours := fmt.Sprint(got.Index, got.Name, ourMAC, got.MTU, got.TxQueue, got.Flags, got.Master, got.Peer, got.OperState, got.Alias)
	if ours != theirs {
		t.Errorf("read  %s\nwant %s", ours, theirs)
	}
	if kind := want.Type(); kind != got.Kind && kind != "device" {
		t.Errorf("%s is of kind %q, want %q", got.Name, got.Kind, kind)
	}
	if up := w.RawFlags&unix.IFF_UP != 0; got.Up() != up {
		t.Errorf("%s: Up = %v, want %v", got.Name, got.Up(), up)
	}
}

func TestNotFound(t *testing.T) {
	s := newSpace(t)
	tests := map[string]func() error{
		"ByName":  func() error { _, err := s.ByName("none"); return err },
		"ByIndex": func() error { _, err := s.ByIndex(4711); return err },
		"Delete":  func() error { return s.Delete(4711) },
		"SetUp":   func() error { return s.SetUp(4711) },
		"SetDown": func() error { return s.SetDown(4711) },
		"SetMTU":  func() error { return s.SetMTU(4711, 1400) },
	}
	for name, f := range tests {
		if err := f(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
}

func TestByNames(t *testing.T) {
	s := newSpace(t)
	s.bridge(t, "br0")
	s.bridge(t, "br1")
	tests := []struct{ ask, want []string }{
		{nil, nil},
		{[]string{"none"}, nil},
		{[]string{"br1", "none", "br0"}, []string{"br1", "br0"}},
		{[]string{"none", "br0", "gone"}, []string{"br0"}},
		{[]string{"br0", "br1", "lo"}, []string{"br0", "br1", "lo"}},
	}
	for _, tt := range tests {
		links, err := s.ByNames(tt.ask...)
		var got []string
		for _, l := range links {
			got = append(got, l.Name)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("ByNames(%q) = %q, %v; want %q", tt.ask, got, err, tt.want)
		}
	}
}

func TestByNameAndIndex(t *testing.T) {
	s := newSpace(t)
	br0, br1 := s.bridge(t, "br0"), s.bridge(t, "br1")
	for _, tt := range []struct {
		name  string
		index int
		want  []string // the links that are there
		err   string
	}{
		{"br0", br1, []string{"br0", "br1"}, ""},
		{"br1", br1, []string{"br1", "br1"}, ""},
		{"none", br0, []string{"", "br0"}, "look up link none"},
		{"br0", 4711, []string{"br0", ""}, "look up link 4711"},
		{"none", 4711, []string{"", ""}, "look up link none"},
	} {
		before := s.Sends
		named, indexed, err := s.ByNameAndIndex(tt.name, tt.index)
		got := []string{"", ""}
		for i, l := range []*Link{named, indexed} {
			if l != nil {
				got[i] = l.Name
			}
		}
		if !slices.Equal(got, tt.want) || s.Sends != before+1 {
			t.Errorf("ByNameAndIndex(%q, %d) = %q after %d messages; want %q", tt.name, tt.index, got, s.Sends-before, tt.want)
		}
		if (err == nil) != (tt.err == "") || err != nil && (!errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("ByNameAndIndex(%q, %d): %v; want %q", tt.name, tt.index, err, tt.err)
		}
	}
}

// More answers than a socket's receive buffer holds.
func TestByNamesOfMany(t *testing.T) {
	s := newSpace(t)
	s.bridge(t, "br0")
	const n = 1000
	ask := slices.Repeat([]string{"br0"}, n)
	links, err := s.ByNames(ask...)
	if err != nil || len(links) != n {
		t.Errorf("%d links of %d, error %v", len(links), n, err)
	}
}

func TestChanges(t *testing.T) {
	s := newSpace(t)
	index := s.bridge(t, "br0")
	steps := []struct {
		name string
		do   func() error
		ok   func(l *Link) bool
	}{
		{"SetDown", func() error { return s.SetDown(index) }, func(l *Link) bool { return !l.Up() }},
		{"SetUp", func() error { return s.SetUp(index) }, func(l *Link) bool { return l.Up() }},
		{"SetFlag", func() error { return s.SetFlag(index, unix.IFF_PROMISC, true) },
			func(l *Link) bool { return l.Flags&unix.IFF_PROMISC != 0 && l.Up() }},
		{"clear the flag", func() error { return s.SetFlag(index, unix.IFF_PROMISC, false) },
			func(l *Link) bool { return l.Flags&unix.IFF_PROMISC == 0 && l.Up() }},
		{"SetMTU", func() error { return s.SetMTU(index, 1300) }, func(l *Link) bool { return l.MTU == 1300 }},
		{"SetTxQueue", func() error { return s.SetTxQueue(index, 77) }, func(l *Link) bool { return l.TxQueue == 77 }},
		{"SetMAC", func() error { return s.SetMAC(index, [6]byte{2, 1, 2, 3, 4, 5}) },
			func(l *Link) bool { return MACText(l.MAC) == "02:01:02:03:04:05" }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		l, err := s.ByIndex(index)
		if err != nil || !step.ok(l) {
			t.Errorf("after %s: %+v, %v", step.name, l, err)
		}
	}
}

func TestMAC(t *testing.T) {
	tests := []struct {
		text string
		want string // "" for an error
	}{
		{"02:00:00:12:34:56", "02:00:00:12:34:56"},
		{"AA-bb-CC-dd-EE-ff", "aa:bb:cc:dd:ee:ff"},
		{"", ""}, {"02:00:00:12:34", ""}, {"02:00:00:12:34:56:78", ""}, {"2:0:0:12:34:56", ""}, {"02:00:00:12:34:5g", ""},
		{"02:00:00:12:34:567", ""}, {"020000123456", ""}, {"02:00:00:12:34:", ""}, {"0\u0660:00:00:12:34:56", ""},
	}
	for _, tt := range tests {
		mac, err := ParseMAC(tt.text)
		if (err == nil) != (tt.want != "") || err == nil && MACText(mac) != tt.want {
			t.Errorf("ParseMAC(%q) = %s, %v; want %q", tt.text, MACText(mac), err, tt.want)
		}
	}
}

// A message that is cut off is no reason to end the process.
func FuzzParse(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = parse(data)
		_, _ = parseAddress(data, 0)
		_, _, _ = parseRoute(data)
	})
}
