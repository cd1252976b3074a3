package bench

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// concurrency measures a runtime that starts and stops many pods at once.
func (r *runner) concurrency(b *testing.B, scenario string) {
	var subjects []*subject
	var pods [][]*netlab.Pod // used again and again: new ones would be thousands
	for _, i := range choose(report.Reference, report.Cnibox, report.Chain, report.NoOps) {
		s := r.newSubject(b, i, usual(hostLocal), "")
		own := r.makePods(b, s.Host, r.profile.batch)
		r.warmUp(b, s, own[0])
		subjects, pods = append(subjects, s), append(pods, own)
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
				r.results.Add(s.point(scenario, verb+" failed"), "calls", sum(taken[i][verb+" failed"]))
			}
		}
	}
}

// batchVerbs are what pods that come and go together need.
var batchVerbs = []string{"ADD", "DEL"}

// tolerated is what share of the calls of a batch may fail, in percent: under load those of the reference plugins do now
// and then, and that is a result.
const tolerated = 5

// batch attaches the pods and detaches them, atOnce at a time: it takes ms of each call, ms of the batch per call, and how
// many calls failed.
func (s *subject) batch(pods []*netlab.Pod, atOnce int, taken samples) error {
	for _, verb := range batchVerbs {
		each := make([]float64, len(pods))
		start := time.Now()
		errs := s.parallel(len(pods), atOnce, func(i int) error {
			took, err := s.operate((*exec.Cmd).Run, verb, s.conf(pods[i], measuredPort+i*s.ports))
			each[i] = milliseconds(took)
			return err
		})
		wall, failed := milliseconds(time.Since(start)), 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		taken[verb] = append(taken[verb], each...)
		taken[verb+" wall"] = append(taken[verb+" wall"], wall/float64(len(pods)))
		taken[verb+" failed"] = append(taken[verb+" failed"], float64(failed))
		if failed > tolerated*len(pods)/100 {
			return errors.Join(errs...)
		}
		if err := reapOrphans(); err != nil {
			return err
		}
	}
	return nil
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
