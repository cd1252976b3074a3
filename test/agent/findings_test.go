package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/test/harmtest"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestFindings: what can't be put back is said once, however often it is looked at, and is no finding any more when its container is gone.
func TestFindings(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	lost, other := harmtest.Attach(t, host, usual, "lost", port(8000)), harmtest.Attach(t, host, usual, "other", port(8001))
	a := start(t, host, "--every", "1s")
	key := "demo/" + lost.ID + "/eth0"
	lost.MustRun(t, "ip", "link", "delete", "eth0")
	netlab.Until(t, "the finding", func() bool { return a.status().Findings[key] != "" })
	for range 3 { // each of which has everything looked at
		harmtest.Script(t, &host.Namespace, "nft flush ruleset")
		netlab.Until(t, "a look", func() bool { return host.CheckList(usual, other.RuntimeConf(port(8001))) == nil })
	}
	said := a.log.lines("can't be put back")
	if len(said) != 1 || !strings.Contains(said[0], key) || !strings.Contains(said[0], "restart the container") {
		t.Errorf("it says\n%s", strings.Join(said, ""))
	}
	netlab.Eventually(t, func() error { // as status asks again
		if code, printed := cnictl(t, host, "agent", "status"); code != 0 || !strings.Contains(printed, key) {
			return fmt.Errorf("status: exit code %d\n%s", code, printed)
		}
		return nil
	})
	if err := host.DelList(usual, lost.RuntimeConf(port(8000))); err != nil {
		t.Fatal(err)
	}
	netlab.Until(t, "the finding to be gone", func() bool { return len(a.status().Findings) == 0 })
	lives(t, host, other, 8001)
}

// TestFight: what is taken away again and again is put back more slowly. That is said once, and the status has it.
func TestFight(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	web := harmtest.Attach(t, host, usual, "web", port(8000))
	a := start(t, host, "--every", "1h")
	before := host.Snapshot(t)
	const said = "is taken away again and again, and"
	slower := func() int { return a.log.count(said) }
	for hits := 0; slower() == 0; hits++ {
		if hits == 20 {
			t.Fatal("hit 20 times, and it is put back as soon as ever")
		}
		harmtest.Script(t, &host.Namespace, "nft flush ruleset")
		netlab.Until(t, "it to be put back", func() bool { return a.log.count(`msg="put back"`) > hits || slower() > 0 })
	}
	for range 14 {
		harmtest.Script(t, &host.Namespace, "nft flush ruleset")
	}
	if s := a.status(); len(s.Slower) != 1 || !strings.Contains(s.Slower[0], web.ID) {
		t.Errorf("status: %+v", s)
	}
	netlab.Until(t, "it to be put back in the end", func() bool { return before.Diff(host.Snapshot(t), ofAgent...) == "" })
	harmtest.Script(t, &host.Namespace, "nft flush ruleset")
	netlab.Until(t, "it to be put back once more", func() bool { return before.Diff(host.Snapshot(t), ofAgent...) == "" })
	if n := slower(); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, strings.Join(a.log.lines(said), ""))
	}
}

// TestFindingOfTheDeleted: what can't be put back is not said of a container that is gone by the time that it would be said.
func TestFindingOfTheDeleted(t *testing.T) {
	t.Parallel()
	netlab.Eventually(t, func() error { // a busy machine may delete a container when it has been said
		host, _ := newHost(t)
		deleted, stays := harmtest.Attach(t, host, usual, "deleted", port(8000)), harmtest.Attach(t, host, usual, "stays", port(8001))
		a := start(t, host, "--every", "1s")
		said := func() int { // the collection may say that it stays
			return a.log.count(`msg="it can't be put back" attachment=demo/` + deleted.ID)
		}
		for _, c := range []*harmtest.Container{deleted, stays} {
			c.MustRun(t, "ip", "link", "delete", "eth0")
		}
		netlab.Until(t, "a look at both", func() bool {
			last := a.status().Last
			return last != nil && last.Outcomes[repair.Wrong] == 2
		})
		if err := host.DelList(usual, deleted.RuntimeConf(port(8000))); err != nil {
			t.Fatal(err)
		}
		a.status() // what it has said by now is in the log
		if said() > 0 {
			return errors.New("each container was deleted when it had been said")
		}
		netlab.Until(t, "the finding", func() bool { return a.status().Findings["demo/"+stays.ID+"/eth0"] != "" })
		if said() > 0 {
			t.Errorf("it says\n%s", a.log)
		}
		return nil
	})
}
