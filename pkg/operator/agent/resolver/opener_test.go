package resolver

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
)

// slow is a packet filter in which a change takes some time, and which has lost a list. It notes how much each change opens.
type slow struct {
	t     *testing.T
	gone  string
	mu    sync.Mutex
	sizes []int
}

// change is how long it takes by the clock of a bubble of synctest, which stands still while anybody works.
const change = 800

func (s *slow) open(openings []nft.Opening) error {
	if !s.mu.TryLock() {
		s.t.Error("two change the packet filter at one time")
		return nil
	}
	defer s.mu.Unlock()
	s.sizes = append(s.sizes, len(openings))
	<-time.After(change)
	if slices.ContainsFunc(openings, func(o nft.Opening) bool { return o.List == s.gone }) {
		return errors.New("no such list")
	}
	return nil
}

// TestOneChangeAtATime: all who ask while the packet filter is changed, or in the pause after it, wait for one change.
func TestOneChangeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filter := &slow{t: t}
		o := opener{filter: filter}
		ask := func() {
			if err := o.open([]nft.Opening{{List: "list"}}); err != nil {
				t.Error(err)
			}
		}
		go ask()
		synctest.Wait() // the first change is under way
		for range 15 {  // until the pause after it is nearly over
			<-time.After(change / 8)
			go ask()
			synctest.Wait()
		}
		<-time.After(4 * change)
		if !slices.Equal(filter.sizes, []int{1, 15}) {
			t.Errorf("changes for %v questions, want 1 and 15", filter.sizes)
		}
	})
}

// TestListThatIsGone: a list that is gone keeps no other list's names from being opened at the same time.
func TestListThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opener{filter: &slow{t: t, gone: "list 1"}}
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = o.open([]nft.Opening{{List: fmt.Sprint("list ", i%3)}}) })
			synctest.Wait() // the others wait for the first one's change
		}
		all.Wait()
		<-time.After(8 * change)
		for i, err := range errs {
			if (err != nil) != (i == 1) {
				t.Errorf("list %d: %v", i%3, err)
			}
		}
	})
}
