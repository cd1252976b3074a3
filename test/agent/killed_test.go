package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"

	"github.com/cnibox/cnibox/test/harmtest"
)

// entries counts what a directory of the host has whose name begins so. It starts no process: what is counted may not be there for long.
func entries(t testing.TB, host *netlab.Host, dir, begins string) (count int) {
	t.Helper()
	host.Do(func() {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name(), begins) {
				count++
			}
		}
	})
	return count
}

// TestKilledRepairing kills an agent in the middle of a repair. The next one completes it.
func TestKilledRepairing(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	const all = 40
	crowd(t, host, usual, all)
	before := host.Snapshot(t)
	back := func() int { return entries(t, host, "/sys/class/net/demo0/brif", "") }
	netlab.Eventually(t, func() error { // a busy machine may see a repair only when it is over
		a := start(t, host)
		harmtest.Script(t, &host.Namespace, "nft flush ruleset; for port in /sys/class/net/demo0/brif/*; do ip link set ${port##*/} nomaster; done")
		netlab.Until(t, "some to be back", func() bool { return back() > 0 })
		a.kill()
		if count := back(); count < all {
			t.Logf("killed when %d of %d were back", count, all)
			return nil
		}
		return errors.New("each repair was over before the agent was killed")
	})
	start(t, host)
	netlab.Until(t, "all to be back", func() bool { return before.Diff(host.Snapshot(t), ofAgent...) == "" })
}
