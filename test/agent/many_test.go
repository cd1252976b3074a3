package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/harmtest"
)

// use is what an agent uses.
type use struct {
	resident    int // MiB
	descriptors int
	goroutines  int
}

func (a *running) use() (u use) {
	a.Helper()
	pid := strconv.Itoa(a.cmd.Process.Pid)
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		a.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "VmRSS:" {
			kib, _ := strconv.Atoi(fields[1])
			u.resident = kib >> 10
		}
	}
	files, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		a.Fatal(err)
	}
	u.descriptors = len(files)
	u.goroutines, _ = strconv.Atoi(a.metric("go_goroutines"))
	return u
}

// TestManyCalls makes many ADDs and DELs, each of a container of its own, and looks at what the agent uses: it does not grow.
func TestManyCalls(t *testing.T) {
	t.Parallel()
	host, _ := newHost(t)
	list := harmtest.Conflist(`{"type": "chain", "capabilities": {"portMappings": true}, "plugins": [` + harmtest.Usual + `]}`)
	harmtest.Attach(t, host, list, "stays", port(9000))
	a := start(t, host, "--every", "5s")
	const workers = 4
	var made atomic.Int64
	makeCalls := func(number int) {
		var callers sync.WaitGroup
		for w := range workers {
			pod := host.NewPod(t, fmt.Sprintf("pod%d-%d", made.Load(), w))
			callers.Go(func() {
				rt := pod.RuntimeConf(port(8000 + w))
				for range number / workers {
					rt.ContainerID = fmt.Sprint("container", made.Add(1))
					if _, err := host.AddList(list, rt); err != nil {
						t.Error(err)
						return
					}
					if err := host.DelList(list, rt); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		callers.Wait()
	}
	all := chosen(200, *calls)
	begun := time.Now()
	makeCalls(all / 10)
	first := a.use()
	makeCalls(all/2 - all/10)
	middle := a.use()
	makeCalls(all - all/2)
	last := a.use()
	t.Logf("%d ADDs and DELs in %v: at the start %+v, in the middle %+v, at the end %+v", made.Load(), time.Since(begun).Round(time.Second), first, middle, last)
	const slack = 10 // what is under way
	if last.descriptors > first.descriptors+slack || last.goroutines > first.goroutines+slack || last.resident > 2*middle.resident {
		t.Error("it grows")
	}
	if s := a.status(); s.Repaired > 0 || len(s.Findings) > 0 {
		t.Errorf("status: %+v", s)
	}
}
