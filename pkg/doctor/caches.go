package doctor

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/node"
)

// isResult reports whether a path is that of a file of libcni's cache.
func isResult(path string) bool { return filepath.Base(filepath.Dir(path)) == "results" }

// checkCaches looks at what runtimes have kept of their attachments.
func checkCaches(_ context.Context, s *subject) (list []Finding, err error) {
	for _, u := range s.Unread {
		if !isResult(u.What) {
			continue
		}
		whose, remedy := "nobody's who is known", command("rm", u.What)
		for _, a := range s.Attachments {
			if node.PathOf(filepath.Dir(filepath.Dir(u.What)), a.Key()) == u.What {
				whose = a.Owner + "'s, which is " + string(a.State)
				if a.State == node.Alive {
					remedy = lines(remedy, comment("DEL works without; until then `cnictl gc %s` needs --valid %s/%s", a.Network, a.ContainerID, a.IfName))
				}
			}
		}
		list = append(list, found("cache-torn", u.Network, remedy, "%s can't be read (%s); it is %s", u.What, u.Why, whose))
	}
	for _, n := range s.networks {
		dirs := map[string]bool{}
		for _, a := range s.Attachments {
			if a.Network == n.Name && a.Result != nil {
				dirs[a.Result.Dir] = true
			}
		}
		if len(dirs) > 1 {
			list = append(list, found("network-in-two-caches", n.Name, comment("give one of the runtimes a network of its own: another file in %s, with another name, bridge and subnet",
				filepath.Dir(n.File)), "results of network %s are in %s", n.Name, strings.Join(slices.Sorted(maps.Keys(dirs)), " and ")))
		}
	}
	return list, nil
}
