package resolver

import (
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// outcome is what came of a question.
type outcome = string

// The outcomes of questions.
const (
	named     outcome = "name"      // a container's
	forwarded outcome = "forwarded" // answered by the node's servers
	failed    outcome = "failed"    // not answered by them
	refused   outcome = "refused"   // asked by nobody who may, or in a way that is not answered
	closed    outcome = "closed"    // not on the lists of the container
	limited   outcome = "limited"   // more than one container may ask
)

// figures count questions.
type figures struct {
	counts   map[outcome]*atomic.Int64
	upstream prometheus.Histogram
}

func newFigures() figures {
	f := figures{counts: map[outcome]*atomic.Int64{}}
	for _, o := range []outcome{named, forwarded, failed, refused, closed, limited} {
		f.counts[o] = new(atomic.Int64)
	}
	const name = "dns_upstream_seconds"
	f.upstream = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "cnibox", Subsystem: "agent", Name: name,
		Help: "How long the node's DNS servers took for a question.", Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3}})
	return f
}

func (f *figures) count(o outcome) { f.counts[o].Add(1) }

func (f *figures) questions() map[outcome]float64 {
	all := map[outcome]float64{}
	for o, n := range f.counts {
		all[o] = float64(n.Load())
	}
	return all
}

// Register adds the resolver's metrics to others.
func (r *Resolver) Register(to prometheus.Registerer) {
	for o, n := range r.figures.counts {
		to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "cnibox", Subsystem: "agent", Name: "dns_questions_total",
			Help: "Questions of containers for names, by what came of them.", ConstLabels: prometheus.Labels{"outcome": string(o)}},
			func() float64 { return float64(n.Load()) }))
	}
	to.MustRegister(r.figures.upstream)
}

// Things that can be wrong besides places.
const (
	aboutServers = "servers"
	aboutRecords = "records"
	aboutLists   = "lists"
)

// said knows what is wrong, so that it is logged once.
type said struct {
	log *slog.Logger

	mu    sync.Mutex
	texts map[string]string
}

func (s *said) add(about, text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]string{}
	}
	if _, was := s.texts[about]; !was {
		s.log.Warn(text, "error", err)
	}
	s.texts[about] = text + ": " + err.Error()
}

func (s *said) drop(about string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.texts, about)
}

// dropPlaces forgets what is wrong at places other than these.
func (s *said) dropPlaces(but map[netip.AddrPort]bool) {
	kept := map[string]bool{}
	for place := range but {
		kept[placeName(place)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.texts, func(about, _ string) bool {
		return about != aboutServers && about != aboutRecords && about != aboutLists && !kept[about]
	})
}

func (s *said) all() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.texts)
}
