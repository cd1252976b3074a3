package agent

import (
	"os"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"

	"github.com/cnibox/cnibox/test/harmtest"
)

// TestKilledRepairing kills an agent in the middle of a repair. The next one completes it.
func TestKilledRepairing(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	const all = 40
	crowd(t, host, usual, all)
	a := start(t, host)
	before := host.Snapshot(t)
	harmtest.Script(t, &host.Namespace, "nft flush ruleset; for port in /sys/class/net/demo0/brif/*; do ip link set ${port##*/} nomaster; done")
	back := func() (ports int) {
		host.Do(func() {
			list, err := os.ReadDir("/sys/class/net/demo0/brif")
			if ports = len(list); err != nil {
				t.Error(err)
			}
		})
		return ports
	}
	netlab.Until(t, "some to be back", func() bool { return back() > 0 })
	a.kill()
	count := back()
	if t.Logf("killed when %d of %d were back", count, all); count == all {
		t.Error("the repair was over by then")
	}
	start(t, host)
	netlab.Until(t, "all to be back", func() bool { return before.Diff(host.Snapshot(t), ofAgent...) == "" })
}
