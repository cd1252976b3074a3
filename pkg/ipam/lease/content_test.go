package lease

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{"abc\r\neth0", "abc", "", "\x00", "abc\r\n\x00\x00", "a\nb\r\nc"} {
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
