package conntrack

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// portMap reads "udp/5353=10.1.0.2:53" and "udp/192.0.2.1:53=10.1.0.2:53".
func portMap(t testing.TB, s string) spec.PortMap {
	t.Helper()
	host, container, _ := strings.Cut(s, "=")
	name, port, _ := strings.Cut(host, "/")
	protocol, known := spec.Protocol(name)
	if !strings.Contains(port, ":") {
		port = "0.0.0.0:" + port
	}
	at, err := netip.ParseAddrPort(port)
	if err != nil || !known {
		t.Fatalf("port map %q: %v", s, err)
	}
	m := spec.PortMap{Protocol: protocol, HostPort: at.Port(), Container: netip.MustParseAddrPort(container)}
	if !at.Addr().IsUnspecified() {
		m.HostIP = at.Addr()
	}
	return m
}

func portMaps(t testing.TB, texts ...string) (maps []spec.PortMap) {
	t.Helper()
	for _, s := range texts {
		maps = append(maps, portMap(t, s))
	}
	return maps
}

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
