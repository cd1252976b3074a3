package link

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	field "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns/netnstest"
)

func demoVeth(master int) Veth {
	return Veth{
		Host: "veth0000c0de", HostMAC: [6]byte{2, 0, 0, 0, 0, 1}, Alias: "demo/c0ffee/eth0", Master: master,
		Container: "eth0", ContainerMAC: [6]byte{2, 0, 0, 0, 0, 2}, MTU: 1400,
		Port: Port{Hairpin: true, Isolated: true},
	}
}

func TestCreateVeth(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	bridge := host.bridge(t, "br0")
	v := demoVeth(bridge)
	pair, err := host.CreateVeth(v, container.ns)
	if err != nil {
		t.Fatal(err)
	}

	outer := host.link(t, v.Host).Attrs()
	inner := container.link(t, v.Container).Attrs()
	if pair.Host != outer.Index || pair.Container != inner.Index {
		t.Errorf("CreateVeth = %+v, the ends are %d and %d", pair, outer.Index, inner.Index)
	}
	if outer.HardwareAddr.String() != MACText(v.HostMAC) || inner.HardwareAddr.String() != MACText(v.ContainerMAC) {
		t.Errorf("MAC addresses %s and %s", outer.HardwareAddr, inner.HardwareAddr)
	}
	if outer.MTU != v.MTU || inner.MTU != v.MTU {
		t.Errorf("MTUs %d and %d, want %d", outer.MTU, inner.MTU, v.MTU)
	}
	if outer.Flags&net.FlagUp == 0 || inner.Flags&net.FlagUp != 0 {
		t.Errorf("flags %v and %v, want the host end up and the container's down", outer.Flags, inner.Flags)
	}
	if outer.MasterIndex != bridge || outer.Alias != v.Alias {
		t.Errorf("host end has master %d and alias %q", outer.MasterIndex, outer.Alias)
	}
	if outer.TxQLen != 0 || inner.TxQLen != 1000 {
		t.Errorf("queue lengths %d and %d, want 0 and 1000", outer.TxQLen, inner.TxQLen)
	}
	for _, l := range []*field.LinkAttrs{outer, inner} {
		if l.NumTxQueues != 1 || l.NumRxQueues != 1 {
			t.Errorf("%s has %d and %d queues, want one each", l.Name, l.NumTxQueues, l.NumRxQueues)
		}
	}
	port, err := host.field.LinkGetProtinfo(host.link(t, v.Host))
	if err != nil {
		t.Fatal(err)
	}
	if !port.Hairpin || !port.Isolated {
		t.Errorf("port options %+v, want hairpin and isolated", port)
	}
	if !host.linkLocal(t, v.Host, "1") {
		t.Error("the bridge's port is given an IPv6 address of its own")
	}
}

func TestCreateVethPlain(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	v := Veth{Host: "veth0000c0de", HostMAC: [6]byte{2, 0, 0, 0, 0, 1}, Container: "eth0", ContainerMAC: [6]byte{2, 0, 0, 0, 0, 2}}
	pair, err := host.CreateVeth(v, container.ns)
	if err != nil {
		t.Fatal(err)
	}
	outer := host.link(t, v.Host).Attrs()
	if outer.MTU != 1500 || outer.MasterIndex != 0 || outer.Alias != "" || outer.Index != pair.Host {
		t.Errorf("host end %+v", outer)
	}
	if !host.linkLocal(t, v.Host, "0") {
		t.Error("a host end that is no bridge's port is not given a link-local address")
	}
}

// linkLocal tells whether the kernel makes link-local addresses for a link the way that mode says (1: not at all).
func (s *space) linkLocal(t *testing.T, name, mode string) bool {
	t.Helper()
	var text []byte
	err := s.ns.Run(func() (err error) {
		text, err = os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/addr_gen_mode")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text)) == mode
}

// What has the name already stays as it is, and no half of a pair is left.
func TestCreateVethNameTaken(t *testing.T) {
	tests := []struct {
		name           string
		host, inside   bool
		wantContainers int
	}{
		{"on the host", true, false, 0},
		{"in the container", false, true, 1},
		{"on both sides", true, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host, container := newSpace(t), newSpace(t)
			v := demoVeth(host.bridge(t, "br0"))
			taken := field.LinkAttrs{Alias: "another's", HardwareAddr: net.HardwareAddr{2, 9, 9, 9, 9, 9}}
			if tt.host {
				makeDummy(t, host, v.Host, taken)
			}
			if tt.inside {
				makeDummy(t, container, v.Container, taken)
			}
			pair, err := host.CreateVeth(v, container.ns)
			if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "create veth "+v.Host) || pair != (Pair{}) {
				t.Fatalf("CreateVeth = %+v, %v; want EEXIST", pair, err)
			}
			if tt.host {
				unchanged(t, host, v.Host)
			} else if _, err := host.ByName(v.Host); !errors.Is(err, ErrNotFound) {
				t.Errorf("a host end is left: %v", err)
			}
			if tt.inside {
				unchanged(t, container, v.Container)
			} else if _, err := container.ByName(v.Container); !errors.Is(err, ErrNotFound) {
				t.Errorf("a container end is left: %v", err)
			}
		})
	}
}

// makeDummy makes a link that is in the way. (A bridge: kernels without dummy
// links have those.)
func makeDummy(t *testing.T, s *space, name string, attrs field.LinkAttrs) {
	t.Helper()
	attrs.Name = name
	attrs.TxQLen = -1
	if err := s.field.LinkAdd(&field.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	if err := s.field.LinkSetAlias(s.link(t, name), attrs.Alias); err != nil {
		t.Fatal(err)
	}
}

func unchanged(t *testing.T, s *space, name string) {
	t.Helper()
	a := s.link(t, name).Attrs()
	if a.Alias != "another's" || a.HardwareAddr.String() != "02:09:09:09:09:09" || a.Flags&net.FlagUp != 0 || a.MasterIndex != 0 {
		t.Errorf("the link that was there was changed: %+v", a)
	}
}

// What can't be given to a new pair takes the pair with it.
func TestCreateVethFails(t *testing.T) {
	tests := map[string]func(v *Veth){
		"no such bridge":           func(v *Veth) { v.Master = 4711 },
		"alias too long":           func(v *Veth) { v.Alias = strings.Repeat("a", 256) },
		"options without a bridge": func(v *Veth) { v.Master = 0 },
		"MTU too large":            func(v *Veth) { v.MTU = 1 << 20 },
		"name too long":            func(v *Veth) { v.Container = "interface0123456" },
		"multicast MAC":            func(v *Veth) { v.ContainerMAC[0] = 1 },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			host, container := newSpace(t), newSpace(t)
			v := demoVeth(host.bridge(t, "br0"))
			spoil(&v)
			pair, err := host.CreateVeth(v, container.ns)
			if err == nil || pair != (Pair{}) {
				t.Fatalf("CreateVeth = %+v, %v; want an error", pair, err)
			}
			if !strings.Contains(err.Error(), v.Host) {
				t.Errorf("the error does not name the link: %v", err)
			}
			for _, s := range []*space{host, container} {
				links, err := s.List()
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range links {
					if l.Name != "lo" && l.Name != "br0" {
						t.Errorf("%s is left", l.Name)
					}
				}
			}
		})
	}
}

func TestCreateVethInANamespaceThatIsClosed(t *testing.T) {
	host := newSpace(t)
	gone := netnstest.New(t)
	gone.Close()
	if _, err := host.CreateVeth(demoVeth(0), gone); err == nil {
		t.Fatal("no error")
	}
	if _, err := host.ByName("veth0000c0de"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a host end is left: %v", err)
	}
}

// Older kernels do not tell the indexes of a new pair.
func TestPairIsLookedUp(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	want := wire(t, host, container)
	if got, err := host.pair("veth00000001"); got != want || err != nil {
		t.Errorf("pair = %+v, %v; want %+v", got, err, want)
	}
}

func TestDeleteTakesBothEnds(t *testing.T) {
	host, container := newSpace(t), newSpace(t)
	pair := wire(t, host, container)
	if err := host.Delete(pair.Host); err != nil {
		t.Fatal(err)
	}
	if _, err := container.ByIndex(pair.Container); !errors.Is(err, ErrNotFound) {
		t.Errorf("the container's end is left: %v", err)
	}
	if err := host.Delete(pair.Host); !errors.Is(err, ErrNotFound) {
		t.Errorf("second Delete: %v, want ErrNotFound", err)
	}
}
