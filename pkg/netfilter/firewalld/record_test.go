package firewalld

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// Lines that make no sense, as an older or newer version may have written, are
// left out.
func TestRecord(t *testing.T) {
	t.Parallel()
	long := plugin.Key{Network: "net", ContainerID: strings.Repeat("c0ffee", 40), IfName: "eth0"}
	want := []holding{
		{netip.MustParseAddr("10.88.0.2"), "trusted", keyOf("web")},
		{netip.MustParseAddr("fd00::2"), "internal", long},
	}
	netlab.NewHost(t).Do(func() {
		if err := os.MkdirAll(stateDir, 0o755); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := writeRecord(want); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(recordFile)
			if err != nil || !strings.HasPrefix(string(text), "10.88.0.2 trusted net web eth0\nfd00::2 internal net c0ffee") {
				t.Errorf("%q is written, error %v", text, err)
			}
			strange := "10.88.0 trusted net web eth0\n\n10.88.0.9 trusted net web\n"
			if err := os.WriteFile(recordFile, []byte(strange+string(text)), 0o600); err != nil {
				t.Error(err)
			}
			if got, err := readRecord(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v is read, error %v; want %v", got, err, want)
			}
		}
	})
}
