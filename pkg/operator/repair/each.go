package repair

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// inOrder orders attachments by the age of their containers, and those of one container the youngest first: of two routes of a container to
// one destination the older one is put behind. Of two with one interface the younger one is last: what contivk8s finds missing is put back by
// the network that the agent has attached the container to.
func inOrder(all []*attempt) {
	type link struct {
		in     *node.Namespace
		ifName string
	}
	container, first := map[*node.Namespace]time.Time{}, map[link]time.Time{} // by their oldest
	for _, a := range all {
		if t, known := container[a.Namespace]; !known || a.Made().Before(t) {
			container[a.Namespace] = a.Made()
		}
		l := link{a.Namespace, a.IfName}
		if t, known := first[l]; !known || a.Made().Before(t) {
			first[l] = a.Made()
		}
	}
	isSecond := func(a *attempt) int { return a.Made().Compare(first[link{a.Namespace, a.IfName}]) }
	slices.SortStableFunc(all, func(a, b *attempt) int {
		return cmp.Or(container[a.Namespace].Compare(container[b.Namespace]), isSecond(a)-isSecond(b), b.Made().Compare(a.Made()))
	})
}

// each does something for attachments, with as many at once as there are processors. Those of one container have their turns one after the
// other, in the order of the list.
func each(ctx context.Context, list []*attempt, do func(*attempt, context.Context)) error {
	containers := make(chan []*attempt)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for container := range containers {
				for _, a := range container {
					if ctx.Err() == nil {
						do(a, ctx)
					}
				}
			}
		})
	}
	for _, container := range byContainer(list) {
		containers <- container
	}
	close(containers)
	workers.Wait()
	return context.Cause(ctx)
}

// byContainer divides a list. An attachment whose namespace is not known is alone.
func byContainer(list []*attempt) (containers [][]*attempt) {
	index := map[*node.Namespace]int{}
	for _, a := range list {
		i, known := index[a.Namespace]
		if !known || a.Namespace == nil {
			i = len(containers)
			index[a.Namespace] = i
			containers = append(containers, nil)
		}
		containers[i] = append(containers[i], a)
	}
	return containers
}

// shared is what all attempts of one Run have.
type shared struct {
	Options
	all    int
	filter *netfilter.Session // what is asked and done for many at once, at the moment

	mu      sync.Mutex
	done    int
	foreign map[string]bool // of the plugins that were looked for, which are not ours
}

func newShared(o Options, all int) *shared {
	return &shared{Options: o, all: all, filter: &netfilter.Session{Listings: &iptables.Listings{}}, foreign: map[string]bool{}}
}

// count counts an attachment for which all is done.
func (s *shared) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	if s.Progress != nil {
		s.Progress(s.done, s.all)
	}
}
