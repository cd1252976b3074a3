package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

const resultsDir = netlab.CacheDir + "/results"

// age makes attachments some minutes old, so that none of them can be that of an ADD under way.
func age(t testing.TB, host *netlab.Host) {
	t.Helper()
	host.MustRun(t, "sh", "-ec", `touch -d "5 minutes ago" /var/lib/cni/networks/*/*; for f in `+resultsDir+`/*; do [ ! -e $f ] || touch -d "4 minutes ago" $f; done`)
}

// leftOf says what a node has of a container.
func leftOf(t testing.TB, host *netlab.Host, c *harmtest.Container) (parts []string) {
	t.Helper()
	for what, script := range map[string]string{
		"lease":  "grep -rl " + c.ID + " /var/lib/cni/networks",
		"rules":  "nft list ruleset | grep " + c.ID[:20],
		"result": "ls " + resultsDir + " | grep " + c.ID,
	} {
		if _, err := host.Output(host.Command("sh", "-c", script)); err == nil {
			parts = append(parts, what)
		}
	}
	return parts
}

// lives says what is wrong with a container that lives.
func lives(t testing.TB, host *netlab.Host, c *harmtest.Container, number int) {
	t.Helper()
	if err := host.CheckList(c.List, c.RuntimeConf(port(number))); err != nil {
		t.Errorf("%s: %v", c.Name(), err)
	}
	if err := host.Ping(c.Address, netlab.Patience); err != nil {
		t.Error(err)
	}
}

// TestCollect: namespaces end without a DEL, by their path and with their process. What they leave is removed after the grace. It is not of
// one whose namespace is kept by a process, or whose runtime alone has stopped.
func TestCollect(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	byPath := harmtest.Attach(t, host, usual, "bypath", port(8000))
	byProcess := ofProcess(t, host, "byprocess", 8001)
	kept := harmtest.Attach(t, host, usual, "kept", port(8002))
	stopped := harmtest.Attach(t, host, usual, "stopped", port(8003))
	kept.Background(t, kept.Command("sleep", "infinity"))
	age(t, host)
	a := start(t, host, "--grace", "2s", "--every", "1s")

	byPath.Delete(t)
	byProcess.end()
	kept.Delete(t)
	for _, c := range []*harmtest.Container{byPath, byProcess.Container} {
		netlab.Until(t, c.Name()+" to be collected", func() bool { return len(leftOf(t, host, c)) == 0 })
	}
	netlab.Until(t, "it to be said", func() bool { return a.status().Collected["removed"] == 2 })
	for _, c := range []*harmtest.Container{kept, stopped} {
		if left := leftOf(t, host, c); len(left) != 3 {
			t.Errorf("%s has %v left", c.Name(), left)
		}
	}
	lives(t, host, stopped, 8003)
	if err := host.Ping(kept.Address, netlab.Patience); err != nil {
		t.Error(err)
	}
	if n := a.log.count(`msg="put back"`) + a.log.count("can't be"); n > 0 {
		t.Errorf("it has done more than to collect:\n%s", a.log)
	}
}

// TestGrace: what is gone stays for the grace, however often it is looked at, and is collected when that is over, however seldom.
func TestGrace(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	gone := harmtest.Attach(t, host, usual, "gone", port(8000))
	var unknown []*harmtest.Container
	for i := range 3 {
		unknown = append(unknown, harmtest.Attach(t, host, usual, fmt.Sprint("unknown", i), port(8001+i)))
	}
	age(t, host)
	a := start(t, host, "--grace", "1h", "--every", "1s")
	gone.Delete(t)
	for i, c := range unknown { // each is told of by a look of its own
		harmtest.Script(t, &host.Namespace, "rm "+resultsDir+"/*"+c.ID+"* $(grep -l "+c.ID+" /var/lib/cni/cnibox/*)")
		c.Delete(t)
		netlab.Until(t, "another look", func() bool { return a.log.count("it is not known whether it is in use") > i })
	}
	if left := leftOf(t, host, gone); len(left) != 3 {
		t.Errorf("it has %v left in the grace", left)
	}
	a.stop()
	start(t, host, "--grace", "2s", "--every", "1h")
	netlab.Until(t, "it to be collected", func() bool { return len(leftOf(t, host, gone)) == 0 })
}

// TestKilledCollecting kills an agent in the middle of a collection. The next one completes it, and nothing that lives is lost.
func TestKilledCollecting(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	const all = 24
	stays := harmtest.Attach(t, host, usual, "stays", port(9000))
	leases := func() int { return entries(t, host, "/var/lib/cni/networks/demo", "10.88.0.") }
	var gone []*harmtest.Container
	netlab.Eventually(t, func() error { // a busy machine may see a collection only when it is over
		begun := len(gone)
		for i := range all {
			gone = append(gone, harmtest.Attach(t, host, usual, fmt.Sprint("gone", begun+i), port(8000+i)))
		}
		age(t, host)
		var waits []func()
		for _, c := range gone[begun:] {
			waits = append(waits, c.BeginDelete(t))
		}
		for _, wait := range waits {
			wait()
		}
		a := begin(t, host, "--grace", "0s")
		netlab.Until(t, "some to be collected", func() bool { return leases() < all-2 })
		a.kill()
		if left := leases() - 1; left > 0 {
			t.Logf("killed when %d of %d were left", left, all)
			return nil
		}
		return errors.New("each collection was over before the agent was killed")
	})
	start(t, host, "--grace", "0s")
	netlab.Until(t, "the rest to be collected", func() bool { return leases() == 1 })
	for _, c := range gone {
		netlab.Until(t, c.Name()+" to be collected", func() bool { return len(leftOf(t, host, c)) == 0 })
	}
	lives(t, host, stays, 9000)
}
