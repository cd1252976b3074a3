// Package agent runs `cnictl agent` on nodes made of namespaces: beside calls of plugins that come, go and are killed, while somebody takes
// from attachments what they have, and while it is killed itself.
//
// Tests are short unless -long is given: then they take as many attachments and calls as the figures of docs/operate/agent.md are about.
//
//	go test ./test/agent -run TestEvents -v -args -long # CNIBOX_BIN_DIR names built binaries, or they are built first
package agent

import (
	"flag"
	"testing"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

var (
	long  = flag.Bool("long", false, "many attachments and calls, which takes an hour")
	calls = flag.Int("calls", 50_000, "how many ADDs and DELs -long makes")
)

func TestMain(m *testing.M) {
	// Most of a test's time is waiting.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	netlab.Main(m)
}

// chosen is one number for short tests and one for long ones.
func chosen[T any](short, full T) T {
	if *long {
		return full
	}
	return short
}

// newHost returns a node with all plugins and an outside.
func newHost(t testing.TB) (*netlab.Host, *netlab.Outside) {
	t.Helper()
	host := netlab.NewHost(t)
	host.OwnProcesses(t)
	host.InstallPlugins(t, harmtest.Plugins...)
	return host, host.NewOutside(t)
}

// port publishes port 80 of a container.
func port(number int) map[string]any { return harmtest.Port(number, 80, "tcp") }

// usual is the network of tests that are about no network in particular.
var usual = harmtest.Conflist(harmtest.Usual)

// ofAgent begin the lines of a snapshot that tell of what plugins and agents have for themselves.
var ofAgent = append([]string{"file /run/cnibox-agent", "file /run/netns", "mount /run/netns", "file /var/lib/cni/networks/demo/last", "file /var/lib/cni/networks/demo/lock", "file /var/lib/cni/networks/.cnibox"}, harmtest.OfRepair...)
