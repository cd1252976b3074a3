package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/repair"
)

// checkAttachments has the plugins check each attachment that is alive, as repair does first.
func checkAttachments(ctx context.Context, s *subject) (list []Finding, err error) {
	places, err := s.places()
	for _, n := range s.networks {
		reports, wrong := repair.Attachments(ctx, n.alive, repair.Options{Plugins: s.Plugins, Path: places[0].dirs, DryRun: true})
		if wrong != nil {
			return list, wrong
		}
		for _, r := range reports {
			for _, p := range r.Plugins {
				list = append(list, found("attachment-broken", n.Name, command("cnictl", "repair", n.Name), "%s/%s of network %s is not as it was made: %s: %s",
					r.ContainerID, r.IfName, n.Name, p.Plugin, p.Found))
			}
		}
	}
	return list, err
}
