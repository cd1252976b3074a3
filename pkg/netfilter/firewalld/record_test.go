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

// TestRecord leaves out what makes no sense, as another version may have written, and reads the lines of the version before.
func TestRecord(t *testing.T) {
	t.Parallel()
	long := plugin.Key{Network: "net", ContainerID: strings.Repeat("c0ffee", 40), IfName: "eth0"}
	old := holding{netip.MustParseAddr("10.88.0.4"), "trusted", keyOf("old")}
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
			if err != nil || !strings.HasPrefix(string(text), `{"network":"net","containerID":"web","ifname":"eth0","address":"10.88.0.2","zone":"trusted"}`) {
				t.Errorf("%q is written, error %v", text, err)
			}
			other := "10.88.0 trusted net web eth0\n\n10.88.0.9 trusted net web\n"
			if err := os.WriteFile(recordFile, []byte(other+"10.88.0.4 trusted net old eth0\n"+string(text)), 0o600); err != nil {
				t.Error(err)
			}
			if got, err := readRecord(); err != nil || !slices.Equal(got, append(slices.Clone(want), old)) {
				t.Errorf("%v is read, error %v; want %v", got, err, want)
			}
		}
	})
}
