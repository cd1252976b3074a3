package lease

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		content, id, ifName string
		torn                bool
	}{
		{content: "abc\r\neth0", id: "abc", ifName: "eth0"},
		{content: "abc\r\neth0\n", id: "abc", ifName: "eth0"},
		{content: "abc\neth0", id: "abc", ifName: "eth0"}, // an editor
		{content: "abc", id: "abc"},
		{content: "abc\n", id: "abc"},
		{content: "abc\r\n", id: "abc"},
		{content: "", torn: true},
		{content: " \r\n", torn: true},
		{content: "\x00\x00\x00\x00", torn: true},
		{content: "abc\r\n\x00\x00", torn: true},
	} {
		owner, torn := parse("", test.content)
		if want := (plugin.Key{ContainerID: test.id, IfName: test.ifName}); owner != want || torn != test.torn {
			t.Errorf("%q: got %+v, torn %v; want %+v, torn %v", test.content, owner, torn, want, test.torn)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"abc\r\neth0", "abc", "", "\x00", "a\nb\r\nc"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		owner, torn := parse("", data)
		if torn {
			if owner != (plugin.Key{}) {
				t.Fatalf("%q is torn and has the owner %+v", data, owner)
			}
			return
		}
		if owner.ContainerID == "" {
			t.Fatalf("%q has an owner without id", data)
		}
		if owner.IfName == "" {
			return
		}
		again, torn := parse("", format(owner))
		if torn || again != owner {
			t.Fatalf("%q: %+v is written and read as %+v", data, owner, again)
		}
		// What the reference plugin takes for the owner's is the owner's.
		if whole := strings.TrimSpace(data); strings.Count(whole, "\n") == 1 && strings.Contains(whole, "\r\n") {
			id, ifName, _ := strings.Cut(whole, "\r\n")
			if strings.TrimSpace(id) == id && strings.TrimSpace(ifName) == ifName && (owner.ContainerID != id || owner.IfName != ifName) {
				t.Fatalf("%q: got %+v", data, owner)
			}
		}
	})
}

func TestParseName(t *testing.T) {
	for name, want := range map[string]bool{
		"10.1.2.3": true, "fd00::3": true, "::1": true,
		"lock": false, "last_reserved_ip.0": false, "10.1.2.03": false, "fd00:0::3": false, "FD00::3": false,
		"::ffff:10.1.2.3": false, "fe80::1%eth0": false, "10.1.2.3~": false, ".10.1.2.3.swp": false,
	} {
		if _, ok := parseName(name); ok != want {
			t.Errorf("%s: %v, want %v", name, ok, want)
		}
	}
}
