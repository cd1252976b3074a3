package bench

import (
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// concurrency measures a runtime that starts and stops many pods at once.
func (r *runner) concurrency(b *testing.B, scenario string) {
	subjects := r.newSubjects(b, append([]string{report.NoOps}, contenders...), usual(hostLocal), "")
	var pods [][]*netlab.Pod // used again and again: new ones would be thousands
	for i, s := range subjects {
		pods = append(pods, r.makePods(b, s.Host, r.profile.batch))
		r.warmUp(b, s, pods[i][0])
	}
	for _, atOnce := range r.profile.atOnce {
		taken := make([]samples, len(subjects))
		for i, s := range subjects {
			taken[i], s.varied = samples{}, strconv.Itoa(atOnce)
		}
		for range r.profile.batches {
			for _, i := range r.random.Perm(len(subjects)) {
				if err := subjects[i].batch(pods[i], atOnce, taken[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
		for i, s := range subjects {
			for _, verb := range batchVerbs {
				r.results.Add(s.point(scenario, verb), "ms", taken[i][verb]...)
				r.results.Add(s.point(scenario, verb+" wall"), "ms", taken[i][verb+" wall"]...)
				failed := 0.0
				for _, n := range taken[i][verb+" failed"] {
					failed += n
				}
				r.results.Add(s.point(scenario, verb+" failed"), "calls", failed)
			}
		}
	}
}

// batchVerbs are what pods that come and go together need.
var batchVerbs = []string{"ADD", "DEL"}

// tolerated is what share of the calls of a batch may fail, in percent: under load those of the reference plugins do now
// and then, and that is a result.
const tolerated = 5

// batch attaches the pods and detaches them, atOnce at a time: it takes ms of each call, ms of the batch per call, ms of the processes'
// CPU per call and of the caller's own, how many times the share of the processors' time that is, how much of the processors nobody used meanwhile, and how many calls failed.
func (s *subject) batch(pods []*netlab.Pod, atOnce int, taken samples) error {
	for _, verb := range batchVerbs {
		each := make([]float64, len(pods))
		idle, busy, caller, start := idleTime(), childrenCPU(), ownCPU(), time.Now()
		errs := s.parallel(len(pods), atOnce, func(i int) error {
			took, err := s.operate((*exec.Cmd).Run, verb, s.conf(pods[i], measuredPort+i*s.ports))
			each[i] = milliseconds(took)
			return err
		})
		whole, called := time.Since(start), ownCPU()-caller
		wall := milliseconds(whole) / float64(len(pods))
		taken[verb+" idle"] = append(taken[verb+" idle"], 100*float64(idleTime()-idle)/float64(whole)/float64(runtime.NumCPU()))
		failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		taken[verb], taken[verb+" wall"] = append(taken[verb], each...), append(taken[verb+" wall"], wall)
		if s.operates == nil && len(failed) > tolerated*len(pods)/100 { // who is not called by libcni may not be meant for calls at once
			return errors.Join(failed...)
		}
		taken[verb+" failed"] = append(taken[verb+" failed"], float64(len(failed)))
		if err := reapOrphans(); err != nil {
			return err
		}
		used := childrenCPU() - busy
		taken[verb+" caller"] = append(taken[verb+" caller"], milliseconds(called)/float64(len(pods)))
		taken[verb+" CPU"] = append(taken[verb+" CPU"], milliseconds(used)/float64(len(pods)))
		taken[verb+" waits"] = append(taken[verb+" waits"], float64(whole)/float64(used)*float64(runtime.NumCPU()))
	}
	return nil
}

// idleTime is how long the processors have had nothing to do since the machine started, all together.
func idleTime() time.Duration {
	ticks, _ := strconv.Atoi(found("/proc/stat", `(?m)^cpu +\d+ \d+ \d+ (\d+)`))
	return time.Duration(ticks) * time.Second / 100 // the clock's ticks, on all architectures that Go knows
}

// quantile returns the value that a share of all is not above, and 0 if there are none.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)-1))]
}
