package doctor

import (
	"context"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// longestDEL is more than a DEL takes, but for one that waits long for a server.
const longestDEL = 15 * time.Second

var delNotEnded = codes.Declare(finding.Code{Name: "del-not-ended", Severity: finding.Warning,
	Meaning: "A DEL has failed half-way, and was not repeated: the container has lost a part of its network, and nothing is put back.",
	Remedy:  "`cnictl del NETWORK --id CONTAINER --ifname INTERFACE`"})

// checkDeletions looks for attachments of which a DEL has taken away a part, and was not repeated.
func checkDeletions(_ context.Context, s *subject) (list []Finding, err error) {
	for _, a := range s.Attachments {
		if a.State != node.Alive {
			continue
		}
		if began := a.DelBegan(); !began.IsZero() && time.Since(began) > longestDEL {
			list = append(list, found(delNotEnded, a.Network, finding.Run("cnictl", "del", a.Network, "--id", a.ContainerID, "--ifname", a.IfName),
				"the DEL of %s began at %s, and has not ended; the container runs", a.Owner, began.Format(time.DateTime)).Of(a.Owner))
		}
	}
	return list, nil
}
