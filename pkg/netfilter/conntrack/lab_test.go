package conntrack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netfiltertest"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var portMaps = netfiltertest.PortMaps

// load puts entries, each as arguments of conntrack -I, into the host's table.
func load(t testing.TB, h *netlab.Host, entries ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "entries")
	if err := os.WriteFile(file, []byte("-I "+strings.Join(entries, "\n-I ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.MustRun(t, "conntrack", "-R", file)
}

// clients returns the source ports of the entries that the host's table has for
// a protocol, by which the tests know them.
func clients(t testing.TB, h *netlab.Host, protocol string) (ports []string) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		out := h.MustRun(t, "conntrack", "-L", "-f", family, "-p", protocol)
		for line := range strings.Lines(out) {
			_, behind, _ := strings.Cut(line, " sport=")
			port, _, _ := strings.Cut(behind, " ")
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports
}
