package operator

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

const resultsDir = netlab.CacheDir + "/results"

const ageResults = `for f in ` + resultsDir + `/*; do [ ! -e $f ] || touch -d "4 minutes ago" $f; done`

// age makes attachments some minutes old.
func (o *operator) age() {
	o.Helper()
	o.host.MustRun(o, "sh", "-ec", `for f in /var/lib/cni/networks/*/*; do [ ! -e $f ] || touch -d "5 minutes ago" $f; done; `+ageResults)
}

// TestGCBesideADDAndDEL collects while containers come and go. None of them loses anything, and gc finds nothing that it does not know.
func TestGCBesideADDAndDEL(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const callers, rounds = 4, 8
	var wait sync.WaitGroup
	for i := range callers {
		rt := o.host.NewPod(t, fmt.Sprintf("pod%d", i)).RuntimeConf(port(8000+i, 80, "tcp"))
		wait.Go(func() {
			for range rounds {
				if _, err := o.host.AddList(demo, rt); err != nil {
					t.Error(err)
				}
				if err := o.host.CheckList(demo, rt); err != nil {
					t.Error(err)
				}
				if err := o.host.DelList(demo, rt); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	for runs := 0; ; runs++ {
		select {
		case <-done:
			if runs < 3 {
				t.Errorf("gc ran %d times only", runs)
			}
			return
		default:
			if code, printed := o.cnictl("gc", "demo", "--apply"); code != 0 || !strings.Contains(printed, "0 removed, 0 skipped, 0 failed") {
				t.Errorf("exit code %d\n%s", code, printed)
			}
		}
	}
}
