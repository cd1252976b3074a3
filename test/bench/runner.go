// Package bench measures what a runtime waits for: ADD, CHECK and DEL through libcni, with cnibox, with the reference
// plugins and with plugins that do nothing.
//
//	make bench
//
// or a part of it, without a report:
//
//	go test ./test/bench -run '^$' -bench Plugins/node -benchtime 1x -args -rounds 10
//
// Each implementation has a [netlab.Host] of its own, and they take turns. With -short each scenario runs, smaller, to
// show that it works; its figures say little.
package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// runner is one run of the benchmark.
type runner struct {
	programs programs
	profile  profile
	random   *rand.Rand
	results  report.Results
	// pods is how many have been made.
	pods int
	// links is how many the machine had before the first scenario.
	links uint64
}

func newRunner(b testing.TB, p profile) *runner {
	b.Helper()
	adoptOrphans(b)
	return &runner{programs: buildPrograms(b), profile: p, random: rand.New(rand.NewPCG(1, 2)), links: links()}
}

// makePods makes n pods, with names that no other pod has.
func (r *runner) makePods(b testing.TB, host *netlab.Host, n int) []*netlab.Pod {
	b.Helper()
	pods := make([]*netlab.Pod, n)
	for i := range pods {
		r.pods++
		pods[i] = host.NewPod(b, fmt.Sprintf("pod%d", r.pods))
	}
	return pods
}

// awaitQuiet waits until the kernel has destroyed the network namespaces of the scenario before, which keeps it busy: until
// there are no more links in the machine than at first, or for half a minute, since they may be somebody else's.
func (r *runner) awaitQuiet() {
	for end := time.Now().Add(30 * time.Second); links() > r.links && time.Now().Before(end); {
		netlab.Pause(50 * time.Millisecond)
	}
}

// links is how many links that are not hardware the machine has, in all namespaces.
func links() uint64 {
	var st unix.Stat_t
	if unix.Stat("/sys/devices/virtual/net", &st) != nil {
		return 0
	}
	return uint64(st.Nlink)
}

// scenario is one thing that is measured.
type scenario struct {
	name string
	run  func(r *runner, b *testing.B, scenario string)
}

// scenarios are run in this order. The last one leaves thousands of namespaces for the kernel to clean up.
var scenarios = []scenario{
	{"node", (*runner).node},
	{"ports", (*runner).ports},
	{"concurrency", (*runner).concurrency},
	{"leases", (*runner).leases},
	{"dual-stack", (*runner).dualStack},
	{"plugins", (*runner).plugins},
	{"start", (*runner).start},
	{"status", (*runner).status},
	{"memory", (*runner).memory},
	{"disk", (*runner).disk},
	{"counts", (*runner).counts},
	{"attachments", (*runner).attachments},
}

// profile says how much is done.
type profile struct {
	// warmups are calls that don't count: the first on a node make bridge and ruleset, and find out how orphans fare.
	warmups int
	rounds  int
	// fewRounds are those of what takes long.
	fewRounds   int
	starts      int   // of each program
	attachments []int // on the node
	leases      []int
	atOnce      []int // calls
	batch       int   // attachments in each batch of concurrent calls
	batches     int
	collected   []int         // attachments on the node whose GC is measured
	collections int           // of each plugin
	many        []int         // attachments on the nodes that are largest
	looks       int           // of each command at all of such a node
	rest        time.Duration // of the agent there
	burst       int           // calls that are all made at once
	bursts      int
	// disk is whether all reference plugins are built to see their size, which takes a minute the first time.
	disk bool
}

var (
	full = profile{
		warmups: 2, rounds: 30, fewRounds: 16, starts: 200,
		attachments: []int{0, 100, 500, 1000},
		leases:      []int{0, 1000, 10000, 50000},
		atOnce:      []int{1, 8, 32, 64}, batch: 64, batches: 3,
		collected: []int{100, 1000, 5000}, collections: 3,
		many: []int{0, 1000, 4000, 10000}, looks: 3, rest: 20 * time.Second,
		burst: 250, bursts: 2,
		disk: true,
	}
	short = profile{
		warmups: 1, rounds: 3, fewRounds: 2, starts: 10,
		attachments: []int{0, 10},
		leases:      []int{0, 1000},
		atOnce:      []int{1, 8}, batch: 8, batches: 1,
		collected: []int{20}, collections: 1,
		many: []int{0, 10}, looks: 1, rest: time.Second,
		burst: 8, bursts: 1,
	}
)
