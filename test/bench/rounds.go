package bench

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// samples are what the rounds of one subject gave, by metric, in milliseconds.
type samples map[string][]float64

func (s samples) add(verb string, c cost) {
	s[verb] = append(s[verb], milliseconds(c.wall))
	s[verb+" CPU"] = append(s[verb+" CPU"], milliseconds(c.cpu))
}

// measure has all subjects make all calls for a new pod, in each round, and records what they took.
func (r *runner) measure(b *testing.B, scenario string, rounds int, subjects []*subject) {
	b.Helper()
	warmups := r.profile.warmups
	// All are made before the first is used, and last until b ends: making and destroying namespaces keeps the kernel busy
	// for a while.
	pods := make([][]*netlab.Pod, len(subjects))
	for i, s := range subjects {
		pods[i] = r.makePods(b, s.Host, rounds+warmups)
	}
	taken := make([]samples, len(subjects))
	for i := range taken {
		taken[i] = samples{}
	}
	for round := range rounds + warmups {
		// Not only rotated: then each would always run in what the same other one left behind.
		for _, i := range r.random.Perm(len(subjects)) {
			if err := subjects[i].round(pods[i][round], taken[i], round >= warmups); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i, s := range subjects {
		for _, verb := range verbs {
			for _, metric := range []string{verb, verb + " CPU"} {
				point := report.Point{Scenario: scenario, Case: s.varied, Plugins: s.implementation, Metric: metric}
				r.results.Add(point, "ms", taken[i][metric]...)
			}
		}
	}
}

// round makes the calls for one pod.
func (s *subject) round(pod *netlab.Pod, taken samples, counts bool) error {
	rt := s.conf(pod, s.port)
	for _, verb := range s.verbs {
		c, err := s.timed(verb, rt)
		if err != nil {
			return err
		}
		if counts {
			taken.add(verb, c)
		}
	}
	return nil
}

// warmUp has a subject make all calls for a pod, which don't count.
func (r *runner) warmUp(b testing.TB, s *subject, pod *netlab.Pod) {
	b.Helper()
	for range r.profile.warmups {
		if err := s.round(pod, nil, false); err != nil {
			b.Fatal(err)
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
