package bench

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/bench/report"
)

// largest is the case of the largest process of a whole call of libcni.
const largest = "largest"

// memory measures the largest process of each plugin's calls.
func (r *runner) memory(b *testing.B, scenario string) {
	for _, i := range choose(report.Reference, report.Debian, report.Cnibox, report.Chain) {
		s := r.newSubject(b, i, usual(hostLocal()), "")
		peaks := map[report.Point][]float64{}
		for _, pod := range r.makePods(b, s.Host, r.profile.fewRounds) {
			for _, verb := range []string{"ADD", "DEL"} {
				peak, err := r.weigh(s, verb, s.conf(pod, measuredPort))
				if err != nil {
					b.Fatal(err)
				}
				for plugin, bytes := range peak {
					point := report.Point{Scenario: scenario, Case: plugin, Plugins: i.name, Metric: verb}
					peaks[point] = append(peaks[point], bytes)
				}
			}
		}
		for _, plugin := range []string{"bridge", "tuning", "portmap", "chain", largest} {
			for _, verb := range []string{"ADD", "DEL"} {
				point := report.Point{Scenario: scenario, Case: plugin, Plugins: i.name, Metric: verb}
				r.results.Add(point, "bytes", peaks[point]...)
			}
		}
	}
}

// weigh makes a call and returns the peak resident set of the largest process of each plugin, in bytes.
func (r *runner) weigh(s *subject, verb string, rt *libcni.RuntimeConf) (map[string]float64, error) {
	peak := map[string]float64{}
	exec := &wrapped{DefaultExec: plain(), run: func(cmd *exec.Cmd) error {
		plugin := filepath.Base(cmd.Path)
		used, err := r.programs.launch(cmd)
		peak[plugin] = used.peak
		peak[largest] = max(peak[largest], used.peak)
		return err
	}}
	if err := s.call(exec, verb, rt); err != nil {
		return nil, err
	}
	return peak, reapOrphans()
}
