package agent

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/harmtest"
)

// TestSlowDEL: what is put back between the plugins of a DEL that takes long is taken away again, though libcni's result is still there.
func TestSlowDEL(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	web := harmtest.Attach(t, host, usual, "web", port(8000))
	a := start(t, host, "--every", "1s")
	del := func(plugin string) {
		if r := host.Exec(t, plugin, web.Call("DEL", `{"cniVersion": "1.1.0", "name": "demo", "type": "`+plugin+`"}`)); r.ExitCode != 0 {
			t.Fatal(r)
		}
	}
	isPublished := func() bool { return strings.Contains(host.MustRun(t, "nft", "list", "ruleset"), "8000") }
	del("portmap")
	await(t, "the port to be put back", func() bool { return a.log.count(`msg="put back"`) > 0 && isPublished() })
	del("bridge")
	a.stop() // it may have looked again before that
	if isPublished() {
		t.Error("the port leads to a container that is gone")
	}
}
