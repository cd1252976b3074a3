package agent

import (
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// number gives numbers to the namespaces of attachments that have none, as those of macvlan: of others no event is heard. One that can't be
// numbered is looked at with everything.
func number(attachments []*node.Attachment) {
	for _, a := range attachments {
		if a.Namespace == nil {
			continue
		}
		if n, err := netns.Open(a.Namespace.Path()); err == nil {
			_, _ = watch.Number(int(n.Fd()))
			_ = n.Close()
		}
	}
}
