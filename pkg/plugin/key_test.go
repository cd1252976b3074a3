package plugin

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

var demo = Key{Network: "demo", ContainerID: "c0ffee", IfName: "eth0"}

// What is in the kernel of a node was named by an older cnibox: a change of any of these values, of what is hashed or how, would make DEL and GC miss it.
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
	long := strings.Repeat("c", 200)
	seen := map[string]Key{}
	for _, tt := range []struct {
		key Key
		cut bool
	}{
		{demo, false},
		{Key{"n", strings.Repeat("c", MaxKeyText-len("n//eth0")), "eth0"}, false},
		{Key{"n", strings.Repeat("c", MaxKeyText+1-len("n//eth0")), "eth0"}, true},
		{Key{"n", strings.Repeat("c", MaxKeyText+1-len("n//")-len(longest)), longest}, true},
		{Key{"bridge", "default-" + strings.Repeat("f", 64), "eth0"}, false}, // as nerdctl's
		{Key{strings.Repeat("n", 4096), "c", longest}, true},
		{Key{"n", long, "eth0"}, true}, {Key{"n", long, "eth1"}, true}, {Key{"n", long + "d", "eth0"}, true}, {Key{"m", long, "eth0"}, true},
		{Key{"n" + long, "c", "eth0"}, true}, {Key{"n" + long, "d", "eth0"}, true},
	} {
		text := tt.key.String()
		if len(text) > MaxKeyText || strings.Contains(text, "~") != tt.cut || !strings.HasSuffix(text, "/"+tt.key.IfName) {
			t.Errorf("%d bytes, want it to be cut: %v: %s", len(text), tt.cut, text)
		}
		if other, found := seen[text]; found {
			t.Errorf("%v and %v have the same text", tt.key, other)
		}
		seen[text] = tt.key
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
