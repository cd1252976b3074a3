package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

var loopbackByPlugin = codes.Declare(finding.Code{Name: "loopback-by-plugin", Severity: finding.Info,
	Meaning: "containerd runs the plugin `loopback` at the start and the end of each pod, and could set `lo` up itself.",
	Remedy:  "`use_internal_loopback = true` in containerd's configuration"})

// checkLoopback looks whether a runtime starts a process for what it could do itself.
func checkLoopback(_ context.Context, s *subject) (list []Finding, err error) {
	for _, r := range s.runtimes {
		if where := r.CouldSetLoopbackUp(runtimes.Options{}); where != "" {
			list = append(list, found(loopbackByPlugin, "", finding.Say("set use_internal_loopback = true in %s, then: %s", where, finding.Run("systemctl", "restart", "containerd")),
				"%s runs the plugin loopback twice for each pod, and could set lo up itself", r.Name))
		}
	}
	return list, nil
}
