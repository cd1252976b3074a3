package box

import (
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// detacher decides whether the plugin may leave an orphan behind, by
// CNIBOX_DETACH: "always", "never", or where orphans are known to be reaped
// ("auto", the default). The trace tells what was decided, and why.
func detacher(r *plugin.Request, how string) func() bool {
	if how == "" {
		how = "auto"
	}
	return func() bool {
		detach, why := how == "always", "CNIBOX_DETACH="+how
		if how == "auto" {
			detach, why = link.MayLeave()
		}
		if detach {
			r.Announce("leave the end to an orphan: " + why)
		} else {
			r.Announce("wait for the end: " + why)
		}
		return detach
	}
}
