package agent

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"

	"github.com/cnibox/cnibox/test/harmtest"
)

// TestHarms does to a network and to one container's attachment all that repair mends, and has it back without anybody's doing: from events
// alone, but for what no event tells of. Short tests do a sixth of it.
func TestHarms(t *testing.T) {
	t.Parallel()
	for i, h := range harmtest.Harms {
		if !*long && i%6 != 0 {
			continue
		}
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			host, _ := newHost(t)
			harmtest.Script(t, &host.Namespace, h.Prepare)
			list := h.List()
			web := harmtest.Attach(t, host, list, "web", port(8080))
			harmtest.Attach(t, host, list, "other", port(8081))
			every := "1h"
			if h.Silent {
				every = "1s"
			}
			a := start(t, host, "--every", every)
			before, inside := host.Snapshot(t), web.Snapshot(t)
			h.Do(t, host, web)
			diff := ""
			netlab.Until(t, "all to be back", func() bool {
				diff = before.Diff(host.Snapshot(t), ofAgent...) + inside.Diff(web.Snapshot(t))
				if a.hasEnded() {
					t.Fatal("the agent has ended")
				}
				return diff == ""
			})
		})
	}
}
