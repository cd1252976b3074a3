package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

// checkAttachments has the plugins check what the host has of each attachment that is alive, as repair does first, and with Deep also what is inside
// the containers. Plain doctor leaves out networks of which an error was found that says why.
func checkAttachments(ctx context.Context, s *subject) (list []Finding, err error) {
	places, err := s.places()
	if err != nil {
		return nil, err
	}
	alive := slices.DeleteFunc(slices.Clone(s.Attachments), func(a *node.Attachment) bool {
		return a.State != node.Alive || !s.Deep && s.hasError(a.Network)
	})
	run, err := repair.Now(ctx, alive, repair.Options{Plugins: s.Plugins, Path: places[0].dirs, DryRun: true})
	if err == nil && s.Deep {
		_, err = run.LookInside(ctx, func(*node.Attachment) bool { return true })
	}
	broken := map[string][]string{} // by network
	for _, r := range run.Reports {
		for _, p := range r.Plugins {
			if p.LeftAlone {
				list = append(list, found(repair.Changed, r.Network, nil, "%s/%s of network %s is other than it was made: %s: %s", r.ContainerID, r.IfName, r.Network, p.Plugin, p.Summary))
				continue
			}
			broken[r.Network] = append(broken[r.Network], fmt.Sprintf("%s/%s: %s: %s", r.ContainerID, r.IfName, p.Plugin, p.Summary))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		list = append(list, found(repair.Broken, name, finding.Run("cnictl", "repair", name), "attachments of network %s are not as they were made: %s", name, some(broken[name])))
	}
	return list, err
}
