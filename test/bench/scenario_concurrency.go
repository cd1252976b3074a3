package bench

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// concurrency measures a runtime that starts and stops many pods at once.
func (r *runner) concurrency(b *testing.B, scenario string) {
	var subjects []*subject
	for _, i := range choose(report.Reference, report.Cnibox, report.Chain, report.NoOps) {
		subjects = append(subjects, r.newSubject(b, i, usual(hostLocal()), ""))
	}
	pods := make([][]*netlab.Pod, len(subjects)) // used again and again: new ones would be thousands
	for i, s := range subjects {
		pods[i] = r.makePods(b, s.Host, r.profile.batch)
		r.warmUp(b, s, pods[i][0])
	}
	for _, atOnce := range r.profile.atOnce {
		taken := make([]*batches, len(subjects))
		for i := range taken {
			taken[i] = newBatches()
		}
		for range r.profile.batches {
			for _, i := range r.random.Perm(len(subjects)) {
				if err := taken[i].run(subjects[i], pods[i], atOnce); err != nil {
					b.Fatal(err)
				}
			}
		}
		for i, s := range subjects {
			point := report.Point{Scenario: scenario, Case: strconv.Itoa(atOnce), Plugins: s.implementation}
			taken[i].record(&r.results, point)
		}
	}
}

// batchVerbs are what pods that come and go together need.
var batchVerbs = []string{"ADD", "DEL"}

// batches are what the batches of one subject took, by verb.
type batches struct {
	each   map[string][]float64 // ms of each call
	wall   map[string][]float64 // ms of a batch, per call
	failed map[string]float64
}

func newBatches() *batches {
	return &batches{each: map[string][]float64{}, wall: map[string][]float64{}, failed: map[string]float64{}}
}

// tolerated is what share of the calls of a batch may fail, in percent: under load those of the reference plugins do now
// and then, and that is a result.
const tolerated = 5

// run attaches the pods and detaches them, atOnce at a time.
func (t *batches) run(s *subject, pods []*netlab.Pod, atOnce int) error {
	var confs []*libcni.RuntimeConf
	for i, pod := range pods {
		confs = append(confs, s.conf(pod, measuredPort+i*s.ports))
	}
	for _, verb := range batchVerbs {
		start := time.Now()
		times, errs := s.batch(verb, confs, atOnce)
		t.wall[verb] = append(t.wall[verb], milliseconds(time.Since(start))/float64(len(pods)))
		t.each[verb] = append(t.each[verb], times...)
		t.failed[verb] += float64(len(errs))
		if len(errs) > tolerated*len(pods)/100 {
			return s.explain(verb, errors.Join(errs...))
		}
		if err := reapOrphans(); err != nil {
			return err
		}
	}
	return nil
}

// batch makes the calls for all pods and returns how long each took, in ms, and the errors of those that failed.
func (s *subject) batch(verb string, pods []*libcni.RuntimeConf, atOnce int) (times []float64, errs []error) {
	var mu sync.Mutex
	queue := make(chan *libcni.RuntimeConf, len(pods))
	for _, rt := range pods {
		queue <- rt
	}
	close(queue)
	work := func(rt *libcni.RuntimeConf) {
		start := time.Now()
		err := operate(plain(), verb, s.list, rt)
		took := milliseconds(time.Since(start))
		mu.Lock()
		defer mu.Unlock()
		times = append(times, took)
		if err != nil {
			errs = append(errs, err)
		}
	}
	var done sync.WaitGroup
	for range atOnce {
		done.Go(func() {
			s.Do(func() {
				for rt := range queue {
					work(rt)
				}
			})
		})
	}
	done.Wait()
	return times, errs
}

func (t *batches) record(results *report.Results, point report.Point) {
	add := func(metric, unit string, values ...float64) {
		point.Metric = metric
		results.Add(point, unit, values...)
	}
	for _, verb := range batchVerbs {
		add(verb, "ms", t.each[verb]...)
		add(verb+" wall", "ms", t.wall[verb]...)
		add(verb+" failed", "calls", t.failed[verb])
	}
}
