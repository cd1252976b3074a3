package agent

import (
	"encoding/json"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/operator/agent/resolver"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/metrics"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/process/box"
)

// Status is what an agent says of itself. It looks at nothing but itself for it.
type Status struct {
	Version   string                  `json:"version"`
	PID       int                     `json:"pid"`
	Since     time.Time               `json:"since"`
	Repairs   int                     `json:"repairs"`  // in which something was missing
	Repaired  int                     `json:"repaired"` // attachments, each as often as it was
	Last      *Mend                   `json:"last,omitempty"`
	Findings  map[string]string       `json:"findings"` // by attachment, what can't be put back
	Slower    []string                `json:"slower"`   // attachments that something is taken from again and again
	Collected map[collect.Outcome]int `json:"collected"`
	DNS       *resolver.Status        `json:"dns,omitempty"` // if names are answered
}

func (a *Agent) status() *Status {
	s := &Status{Version: box.Version, PID: os.Getpid(), Findings: a.said.all(), Slower: a.calm.waiting(time.Now())}
	a.record.fill(s)
	if a.names != nil {
		s.DNS = a.names.Status()
	}
	return s
}

// handler serves the agent's own socket.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.status())
	})
	mux.Handle("GET /metrics", a.metrics())
	return mux
}

// metrics serves Prometheus: what `cnictl metrics` prints, and what the agent did.
func (a *Agent) metrics() http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	count := func(name, help string, value func(*Status) int) {
		own.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "cnibox", Subsystem: "agent", Name: name, Help: help},
			func() float64 { return float64(value(a.status())) }))
	}
	count("repairs_total", "Repairs in which something was missing.", func(s *Status) int { return s.Repairs })
	count("repaired_attachments_total", "Attachments that were repaired.", func(s *Status) int { return s.Repaired })
	count("collected_total", "Things removed that attachments held that are gone.", func(s *Status) int { return s.Collected[collect.Removed] })
	count("collect_failures_total", "Things that could not be removed.", func(s *Status) int { return s.Collected[collect.Failed] })
	own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cnibox", Subsystem: "agent", Name: "findings", Help: "Attachments that lack something that can't be put back."},
		func() float64 { return float64(len(a.status().Findings)) }))
	if a.names != nil {
		a.names.Register(own)
	}
	all := prometheus.Gatherers{own, prometheus.GathererFunc(a.figures.get)}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// figures are those of the node. All who ask within a while get the same, so that nobody's asking keeps the figures from others.
type figures struct {
	gather func() ([]*dto.MetricFamily, error)

	mu   sync.Mutex
	at   time.Time
	list []*dto.MetricFamily
	err  error
}

func (f *figures) get() ([]*dto.MetricFamily, error) {
	const while = 5 * time.Second
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() || time.Since(f.at) > while {
		f.list, f.err = f.gather()
		f.at = time.Now()
	}
	return f.list, f.err
}

// gatherNode reads the node for Prometheus.
func (a *Agent) gatherNode() ([]*dto.MetricFamily, error) {
	o := a.Options.Options
	o.Shared = true
	n := node.Read(a.life, o)
	found := doctor.Examine(a.life, doctor.Options{Options: o, Node: n})
	s := metrics.Source{Node: n, Findings: found.Findings, Time: time.Now()}
	if err := s.ReadLog(calllog.Dir); err != nil {
		a.Log.Warn("the log of calls can't be read", "error", err)
	}
	return metrics.Gather(s).Gather()
}
