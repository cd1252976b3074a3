package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"

	"github.com/cnibox/cnibox/test/harmtest"
)

// TestSlowDEL: nothing is put back between the plugins of a DEL that takes long, though the container still seems damaged.
func TestSlowDEL(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	web := harmtest.Attach(t, host, usual, "web", port(8000))
	harmtest.Attach(t, host, usual, "other", port(8001))
	a := start(t, host, "--every", "1s")
	del := func(plugin string) {
		if r := host.Exec(t, plugin, web.Call("DEL", `{"cniVersion": "1.1.0", "name": "demo", "type": "`+plugin+`"}`)); r.ExitCode != 0 {
			t.Fatal(r)
		}
	}
	publishes := func(port string) bool { return strings.Contains(host.MustRun(t, "nft", "list", "ruleset"), port) }
	del("portmap")
	host.MustRun(t, "nft", "flush", "map", "inet", "cnibox", "ports4_v1")
	netlab.Until(t, "the other's port to be put back", func() bool { return a.log.count(`msg="put back"`) > 0 && publishes("8001") })
	if publishes("8000") {
		t.Error("the port of a container that is being deleted is put back")
	}
	del("bridge")
}

// TestUntold: what no event told of is put back when it has been missing for some seconds, as the DEL of another's plugin may be under way.
func TestUntold(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	web := harmtest.Attach(t, host, usual, "web", port(8000))
	a := start(t, host, "--every", "1s")
	lease := "/var/lib/cni/networks/demo/" + web.Address
	begun := time.Now()
	host.MustRun(t, "rm", lease)
	netlab.Until(t, "the lease to be put back", func() bool { return a.status().Last != nil })
	took := time.Since(begun)
	host.MustRun(t, "test", "-e", lease)
	if last := a.status().Last; last.Hit == "the look at everything" && took < 5*time.Second { // and not by a first look that takes long
		t.Errorf("it is put back after %v", took)
	}
}

// TestSlowFirstLook: an agent whose first look takes long is there for its clients before that has ended.
func TestSlowFirstLook(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	harmtest.Attach(t, host, usual, "web", port(8000))
	host.MustRun(t, "nft", "flush", "ruleset")
	const locks = `import fcntl, glob, signal
notes = [open(path) for path in glob.glob("/var/lib/cni/cnibox/*")]
for note in notes: fcntl.flock(note, fcntl.LOCK_EX)
signal.pause()`
	host.Background(t, host.Command("python3", "-c", locks)) // as a DEL that hangs
	netlab.Until(t, "the notes to be locked", func() bool {
		_, err := host.Output(host.Command("sh", "-ec", "for note in /var/lib/cni/cnibox/*; do flock --nonblock $note true && exit 1; done; :"))
		return err == nil
	})
	a := start(t, host)
	if a.log.count("the first look at everything takes long, and goes on") != 1 {
		t.Error(a.log)
	}
}
