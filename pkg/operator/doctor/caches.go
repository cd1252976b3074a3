package doctor

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// isResult reports whether a path is that of a file of libcni's cache.
func isResult(path string) bool { return filepath.Base(filepath.Dir(path)) == "results" }

var (
	cacheTorn = codes.Declare(finding.Code{Name: "cache-torn", Severity: finding.Warning, Brings: finding.Codes{gcStopped},
		Meaning: "libcni has no result of an attachment, such as after a power failure: it can't be checked or repaired.",
		Remedy:  "`rm FILE` if it is nobody's, or start the container again"})
	networkInTwoCaches = codes.Declare(finding.Code{Name: "network-in-two-caches", Severity: finding.Warning,
		Meaning: "Two runtimes use the network: GC of one removes what the other's containers have.",
		Remedy:  "give one of them a network of its own"})
)

// checkCaches looks at what runtimes have kept of their attachments.
func checkCaches(_ context.Context, s *subject) (list []Finding, err error) {
	for _, u := range s.Unread {
		if !isResult(u.What) {
			continue
		}
		whose, remedy := "nobody's who is known", finding.Run("rm", u.What)
		for _, a := range s.Attachments {
			if node.PathOf(filepath.Dir(filepath.Dir(u.What)), a.Key()) == u.What {
				whose, remedy = "of "+a.Owner+", which is "+string(a.State), withoutResult(a)
			}
		}
		list = append(list, found(cacheTorn, u.Network, remedy, "%s can't be read (%s); it is %s", u.What, u.Why, whose).In(u.What))
	}
	for _, n := range s.networks {
		dirs := map[string]bool{}
		for _, a := range s.Attachments {
			if a.Network == n.Name && a.Result != nil {
				dirs[a.Result.Dir] = true
			}
		}
		if len(dirs) > 1 {
			list = append(list, found(networkInTwoCaches, n.Name, finding.Say("give one of the runtimes a network of its own: another file in %s, with another name, bridge and subnet",
				filepath.Dir(n.File)), "results of network %s are in %s", n.Name, strings.Join(slices.Sorted(maps.Keys(dirs)), " and ")))
		}
	}
	return list, nil
}

// withoutResult says what to do about an attachment of which libcni has no result, for a person who knows whether it is in use.
func withoutResult(a *node.Attachment) finding.Remedy {
	if a.State == node.Alive {
		return finding.Say("start container %s again; until then name it to gc: --valid %s/%s", a.ContainerID, a.ContainerID, a.IfName)
	}
	return finding.Say("if container %s is gone: %s", a.ContainerID, finding.Run("cnictl", "del", a.Network, "--id", a.ContainerID, "--ifname", a.IfName))
}
