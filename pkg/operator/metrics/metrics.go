// Package metrics says what is on a node as Prometheus reads it. All of it is how things are at the moment, or were in the last hour: nothing is
// kept from one time to the next, so figures are right whoever asks, and how often.
package metrics

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trust"
	"github.com/cnibox/cnibox/pkg/process/box"
)

// Source is what metrics are made of.
type Source struct {
	Node     *node.Node
	Findings []doctor.Finding
	Time     time.Time // when it was read

	Calls   []calllog.Call // of the log, the earliest first
	LogIsOn bool
}

// ReadLog reads the log of calls in a directory. The error says what of it could not be read; what could be is there all the same.
func (s *Source) ReadLog(dir string) error {
	log, err := calllog.Look(dir)
	list, _, unread := calllog.Read(dir)
	s.Calls, s.LogIsOn = list, log.On
	return errors.Join(err, unread)
}

// Write writes metrics in Prometheus' text format.
func Write(w io.Writer, s Source) error {
	families, err := Gather(s).Gather()
	for _, f := range families {
		_, failed := expfmt.MetricFamilyToText(w, f)
		err = errors.Join(err, failed)
	}
	return err
}

// WriteFile replaces a file that all may read, such as one of node_exporter's textfile collector, which never sees half of it.
func WriteFile(path string, s Source) error {
	var text bytes.Buffer
	if err := Write(&text, s); err != nil {
		return err
	}
	return trust.Write(path, text.Bytes(), 0o644)
}

// Gather returns metrics for who serves them.
func Gather(s Source) prometheus.Gatherer {
	r := registry{prometheus.NewRegistry()}
	r.gauge("build_info", "The version of cnibox; the value is 1.", "version", "goversion").WithLabelValues(box.Version, runtime.Version()).Set(1)
	r.gauge("scrape_timestamp_seconds", "When the node was looked at, in seconds since 1970.").WithLabelValues().Set(seconds(s.Time))
	r.gauge("unread_sources", "Files and other sources that could not be read, so that the node may have more.").WithLabelValues().Set(float64(len(s.Node.Unread)))
	r.networks(s.Node)
	r.findings(s.Findings)
	r.calls(s)
	return r
}

type registry struct{ *prometheus.Registry }

func (r registry) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "cnibox", Name: name, Help: help}, labels)
	r.MustRegister(v)
	return v
}

func (r registry) networks(n *node.Node) {
	size := r.gauge("pool_addresses", "Addresses that a network's pool has.", "network", "subnet")
	used := r.gauge("pool_addresses_used", "Addresses of the pool that are held.", "network", "subnet")
	leaked := r.gauge("pool_addresses_leaked", "Of the held addresses, those of attachments that are gone.", "network", "subnet")
	attachments := r.gauge("attachments", "Containers' interfaces, by whether they are in use: alive, gone or unknown.", "network", "state")
	ports := r.gauge("published_ports", "Ports of the host that lead to containers which are not known to be gone.", "network", "protocol")
	unowned := r.gauge("unowned_things", "Addresses, links and rules that plugins hold for nobody who is known.", "plugin")
	for _, w := range n.Networks {
		for _, p := range w.Pools { // two may begin with one subnet
			size.WithLabelValues(label(w.Name), p.Subnet).Add(float64(p.Size))
			used.WithLabelValues(label(w.Name), p.Subnet).Add(float64(p.Used))
			leaked.WithLabelValues(label(w.Name), p.Subnet).Add(float64(p.Gone))
		}
		for _, state := range node.States {
			attachments.WithLabelValues(label(w.Name), string(state))
		}
	}
	refused := r.gauge("egress_refused_packets", "Packets of containers that their lists have closed, since ADD or since the lists were put back.", "network", "container", "interface")
	for _, a := range n.Attachments {
		if a.Reach != nil && !a.State.IsOver() {
			refused.WithLabelValues(label(a.Network), label(a.ContainerID), label(a.IfName)).Set(float64(a.Reach.Refused))
		}
		attachments.WithLabelValues(label(a.Network), string(a.State)).Inc()
		for _, p := range a.Ports {
			if !a.State.IsOver() {
				ports.WithLabelValues(label(a.Network), label(p.Protocol)).Inc()
			}
		}
	}
	for _, t := range n.Unowned {
		unowned.WithLabelValues(label(t.Plugin)).Inc()
	}
}

func (r registry) findings(list []doctor.Finding) {
	findings := r.gauge("findings", "Findings of cnictl doctor, by code.", "code", "severity")
	for _, f := range list {
		findings.WithLabelValues(f.Code, string(f.Severity)).Inc()
	}
}

// window is what calls are counted in. The log is of bounded size and forgets, so what it has in all would go up and down with that.
const window = time.Hour

// buckets are upper bounds in seconds: most calls take milliseconds, those that wait for locks or servers up to minutes.
var buckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

func (r registry) calls(s Source) {
	count := r.gauge("last_hour_calls", "Calls of plugins that began in the last hour, of those in the log.", "plugin", "verb")
	failed := r.gauge("last_hour_call_errors", "Of these, calls that failed, by the code of the error.", "plugin", "verb", "code")
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "cnibox", Name: "last_hour_call_duration_seconds", Help: "How long these calls took. It forgets after an hour, so it is not for rate().", Buckets: buckets,
	}, []string{"plugin", "verb"})
	r.MustRegister(took)
	on := r.gauge("log_enabled", "Whether calls are logged: 1 or 0.").WithLabelValues()
	if s.LogIsOn {
		on.Set(1)
	}
	oldest := r.gauge("log_oldest_call_timestamp_seconds", "When the first call in the log began; if that is in the last hour the log may have forgotten others since.")
	if len(s.Calls) > 0 {
		oldest.WithLabelValues().Set(seconds(s.Calls[0].Time))
	}
	for _, c := range s.Calls {
		if c.Time.Before(s.Time.Add(-window)) || c.Time.After(s.Time) {
			continue
		}
		name, verb := label(c.Plugin), label(c.Verb)
		count.WithLabelValues(name, verb).Inc()
		took.WithLabelValues(name, verb).Observe(c.Took.Seconds())
		if c.Error != nil {
			failed.WithLabelValues(name, verb, strconv.Itoa(int(c.Error.Code))).Inc()
		}
	}
}

// label returns a text as Prometheus takes it: names come from files of others.
func label(text string) string { return strings.ToValidUTF8(text, "?") }

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
