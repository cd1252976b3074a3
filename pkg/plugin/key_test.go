package plugin

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var demo = Key{Network: "demo", ContainerID: "c0ffee", IfName: "eth0"}

// What is in the kernel of a node was named by an older cnibox: a change of any of these values would make DEL and GC miss it.
func TestNamesStayAsTheyAre(t *testing.T) {
	id := demo.ID("masquerade")
	mac := demo.MAC("container")
	bridge := MAC("bridge", "cni0")
	network := NetworkHash("demo")
	got := map[string]string{
		"String":      demo.String(),
		"HostEnd(0)":  demo.HostEnd(0),
		"HostEnd(1)":  demo.HostEnd(1),
		"HostEnd(2)":  demo.HostEnd(2),
		"HostEnd(3)":  demo.HostEnd(3),
		"ID":          hex.EncodeToString(id[:]),
		"NetworkHash": hex.EncodeToString(network[:]),
		"MAC":         hex.EncodeToString(mac[:]),
		"bridge MAC":  hex.EncodeToString(bridge[:]),
		"LinkIndex":   fmt.Sprint(demo.LinkIndex()),
		"long":        Key{Network: "demo", ContainerID: strings.Repeat("0123456789abcdef", 8), IfName: "eth0"}.String(),
	}
	want := map[string]string{
		"String":      "demo/c0ffee/eth0",
		"HostEnd(0)":  "vethb65edc72",
		"HostEnd(1)":  "veth0a3f0d0e",
		"HostEnd(2)":  "veth0655bb64",
		"HostEnd(3)":  "vethba835c10",
		"ID":          "5ba9038f38cbe676ed4da73c3dd6fc70",
		"NetworkHash": "5ba9038f38cbe676",
		"MAC":         "027942415b48",
		"bridge MAC":  "02da6ec43e06",
		"LinkIndex":   "1163629739",
		"long": "demo/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" +
			"0123456789abcdef0123456789abcdef01234~d06b7f4da8df33c8/eth0",
	}
	for name, value := range got {
		if value != want[name] {
			t.Errorf("%s = %s, want %s", name, value, want[name])
		}
	}
}

func TestKeyText(t *testing.T) {
	const longest = "interface012345"
	tests := []struct {
		name string
		key  Key
		cut  bool
	}{
		{"short", demo, false},
		{"as long as fits", Key{"n", strings.Repeat("c", MaxKeyText-len("n//eth0")), "eth0"}, false},
		{"one more", Key{"n", strings.Repeat("c", MaxKeyText+1-len("n//eth0")), "eth0"}, true},
		{"one more, long ifname", Key{"n", strings.Repeat("c", MaxKeyText+1-len("n//")-len(longest)), longest}, true},
		{"nerdctl's id", Key{"bridge", "default-" + strings.Repeat("f", 64), "eth0"}, false},
		{"very long id", Key{"n", strings.Repeat("c", 4096), longest}, true},
		{"very long network", Key{strings.Repeat("n", 4096), "c", longest}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.key.String()
			if len(text) > MaxKeyText {
				t.Errorf("%d bytes: %s", len(text), text)
			}
			if cut := strings.Contains(text, "~"); cut != tt.cut {
				t.Errorf("cut = %v, want %v: %s", cut, tt.cut, text)
			}
			if !strings.HasSuffix(text, "/"+tt.key.IfName) {
				t.Errorf("%s does not end in the interface", text)
			}
		})
	}
}

func TestLongKeysDiffer(t *testing.T) {
	long := strings.Repeat("c", 200)
	texts := map[string]Key{}
	for _, k := range []Key{
		{"n", long, "eth0"}, {"n", long, "eth1"}, {"n", long + "d", "eth0"}, {"m", long, "eth0"},
		{"n" + long, "c", "eth0"}, {"n" + long, "d", "eth0"},
	} {
		if other, found := texts[k.String()]; found {
			t.Errorf("%v and %v have the same text", k, other)
		}
		texts[k.String()] = k
	}
}

func TestIDHalves(t *testing.T) {
	other := Key{Network: demo.Network, ContainerID: "cafe", IfName: "eth0"}
	a, b, c := demo.ID("masquerade"), other.ID("masquerade"), demo.ID("portmap")
	network := NetworkHash(demo.Network)
	for _, id := range []ID{a, b, c} {
		if [8]byte(id[:8]) != network {
			t.Errorf("ID %x does not start with the network's %x", id, network)
		}
	}
	if [8]byte(a[8:]) == [8]byte(b[8:]) || [8]byte(a[8:]) == [8]byte(c[8:]) {
		t.Errorf("IDs are equal: %x %x %x", a, b, c)
	}
	moved := Key{Network: "other", ContainerID: demo.ContainerID, IfName: demo.IfName}.ID("masquerade")
	if [8]byte(moved[:8]) == network {
		t.Error("two networks have the same half")
	}
}

// The texts are hashed with their lengths: where one ends matters.
func TestKeysThatReadTheSameDiffer(t *testing.T) {
	a := Key{"ab", "c", "eth0"}
	b := Key{"a", "bc", "eth0"}
	if a.ID("x") == b.ID("x") || a.HostEnd(0) == b.HostEnd(0) || slices.Equal(a.MAC("x"), b.MAC("x")) {
		t.Error("(ab, c) and (a, bc) are mixed up")
	}
}

func TestMACIsLocalUnicast(t *testing.T) {
	for i := range 1000 {
		mac := MAC("test", fmt.Sprint(i))
		if mac[0]&0x01 != 0 || mac[0]&0x02 == 0 {
			t.Fatalf("MAC %x is not a locally administered unicast address", mac)
		}
	}
}

// Near keys must not have near names: 32 bits are few, and ids of a runtime may differ in their last digit only.
func TestHostEndsSpread(t *testing.T) {
	const n = 20000
	seen := map[string]bool{}
	for i := range n {
		k := Key{Network: "demo", ContainerID: fmt.Sprintf("pod%d", i), IfName: "eth0"}
		for salt := range HostEnds {
			name := k.HostEnd(salt)
			if len(name) != len("veth")+8 {
				t.Fatalf("host end %q", name)
			}
			seen[name] = true
		}
	}
	// Of 80,000 random 32-bit numbers 0.75 pairs are equal.
	if collisions := n*HostEnds - len(seen); collisions > 10 {
		t.Errorf("%d of %d names are not unique", collisions, n*HostEnds)
	}
}

func TestParseKey(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, k := range []Key{{"net", "id", "eth0"}, {"net", "id", "eth~0"}, {"net", long, "eth0"}} {
		if got := ParseKey(k.String()); got != k {
			t.Errorf("%s: %v", k, got)
		}
	}
	for k, want := range map[Key]Key{{"net", long + long, "eth~0"}: {Network: "net"}, {long + long, "id", "eth0"}: {}} {
		if got := ParseKey(k.String()); got != want {
			t.Errorf("%s, which was cut: %v, want %v", k, got, want)
		}
	}
	for _, text := range []string{"", "net", "net id"} {
		if got := ParseKey(text); got != (Key{}) {
			t.Errorf("%q: %v", text, got)
		}
	}
}
