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

// checkAttachments has the plugins that repair would ask check each attachment that is alive: what the host has of it, and what is inside the
// container. A finding whose reason other checks have found comes of what they say (finding.Trace).
func checkAttachments(ctx context.Context, s *subject) (list []Finding, err error) {
	alive := slices.DeleteFunc(slices.Clone(s.Attachments), func(a *node.Attachment) bool { return a.State != node.Alive })
	run, err := repair.Now(ctx, alive, repair.Options{Plugins: s.Plugins, Path: s.BinDirs, DryRun: true})
	if err == nil {
		_, err = run.LookInside(ctx, func(*node.Attachment) bool { return true })
	}
	broken, older, open, changed := map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string][]string{} // by network
	for _, r := range run.Reports {
		for _, p := range r.Plugins {
			of, text := broken, fmt.Sprintf("%s/%s: %s: %s", r.ContainerID, r.IfName, p.Plugin, p.Summary)
			switch {
			case p.LeftAlone:
				of = changed
			case p.Code == repair.Older.Name:
				of, text = older, r.ContainerID+"/"+r.IfName
			case closesEgress(s.row(p.Plugin).Facts(nil)):
				of = open
			}
			of[r.Network] = append(of[r.Network], text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		list = append(list, found(listsGone, name, finding.Run("cnictl", "repair", name), "containers of network %s are not kept to their lists: %s", name, some(open[name])))
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		list = append(list, found(repair.Broken, name, finding.Run("cnictl", "repair", name), "attachments of network %s are not as they were made: %s", name, some(broken[name])))
	}
	for _, name := range slices.Sorted(maps.Keys(older)) {
		list = append(list, found(repair.Older, name, finding.Run("cnictl", "repair", name), "attachments of network %s are as another version of cnibox made them: %s", name, some(slices.Compact(older[name]))))
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		list = append(list, found(repair.Changed, name, nil, "containers of network %s are other than they were made, and are left alone: %s", name, some(changed[name])))
	}
	return list, err
}
