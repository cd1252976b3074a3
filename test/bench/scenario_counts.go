package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/bench/report"
)

// counts counts what ADD and DEL do.
func (r *runner) counts(b *testing.B, scenario string) {
	for _, i := range choose(everyone...) {
		s := r.newSubject(b, i, usual(hostLocal()), "0")
		pod := r.makePods(b, s.Host, 1)[0]
		r.warmUp(b, s, pod)
		for _, verb := range []string{"ADD", "DEL"} {
			t, err := s.traced(b, verb, s.conf(pod, measuredPort))
			if err != nil {
				b.Fatal(err)
			}
			for _, c := range []struct {
				metric string
				n      int
			}{{"execs", t.execs}, {"processes", t.processes}, {"sends", t.sends}, {"messages", t.messages}, {"calls", t.calls}} {
				point := report.Point{Scenario: scenario, Case: s.varied, Plugins: i.name, Metric: verb + " " + c.metric}
				r.results.Add(point, "", float64(c.n))
			}
		}
	}
}

// traced makes a call with every plugin under strace, which keeps it from seeing that orphans are reaped.
func (s *subject) traced(b testing.TB, verb string, rt *libcni.RuntimeConf) (t tally, err error) {
	b.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		b.Fatalf("count system calls: %v (make setup installs it)", err)
	}
	dir, n := b.TempDir(), 0
	err = s.call(&wrapped{DefaultExec: plain(), run: func(cmd *exec.Cmd) error {
		n++
		trace := filepath.Join(dir, fmt.Sprintf("%s%d", verb, n))
		cmd.Env = append(cmd.Env, "CNIBOX_DETACH=always")
		under(cmd, strace, "-f", "-qq", "-yy", "-e", "signal=none", "-o", trace)
		if err := cmd.Run(); err != nil {
			return err
		}
		text, err := os.ReadFile(trace)
		t.count(string(text))
		return err
	}}, verb, rt)
	return t, err
}
