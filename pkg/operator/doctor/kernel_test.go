package doctor

import (
	"strings"
	"testing"
)

// TestModprobe names modules only where a feature is in some.
func TestModprobe(t *testing.T) {
	for modules, want := range map[string]string{"": "use a kernel that is built with it", "vrf": "modprobe -a vrf", "a, b": "modprobe -a a b"} {
		if got := modprobe(modules).String(); !strings.Contains(got, want) || modules == "" && strings.Contains(got, "modprobe") {
			t.Errorf("%q: %s", modules, got)
		}
	}
}
