package bench

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// limits is bandwidth with limits of its own, so that STATUS has something to look at.
var limits = object{"type": "bandwidth", "ingressRate": 1e8, "ingressBurst": 1e7, "egressRate": 1e8, "egressBurst": 1e7}

// status measures STATUS of a whole list, which some runtimes ask for every few seconds, beside VERSION of the same plugins, which only
// starts them.
func (r *runner) status(b *testing.B, scenario string) {
	whole := append(usual(hostLocal), object{"type": "firewall"}, limits)
	subjects := r.newSubjects(b, contenders, whole, "")
	pods := make([]*netlab.Pod, len(subjects))
	for i, s := range subjects {
		s.list.CNIVersion = "1.1.0" // others have no STATUS
		s.install(b, s.Host, r.programs, "firewall", "bandwidth")
		pods[i] = r.makePods(b, s.Host, 1)[0]
	}
	r.timeStatus(b, scenario, "nothing yet", subjects)
	for i, s := range subjects {
		if _, err := s.timed("ADD", s.conf(pods[i], measuredPort)); err != nil {
			b.Fatal(err)
		}
	}
	r.timeStatus(b, scenario, "one attachment", subjects)
}

func (r *runner) timeStatus(b *testing.B, scenario, varied string, subjects []*subject) {
	taken := make([]samples, len(subjects))
	for i, s := range subjects {
		taken[i], s.varied = samples{}, varied
	}
	for round := range r.profile.rounds + 1 {
		for _, i := range r.random.Perm(len(subjects)) {
			status, err := subjects[i].timed("STATUS", nil)
			if err != nil {
				b.Fatal(err)
			}
			version, err := subjects[i].timed("VERSION", nil)
			if err != nil {
				b.Fatal(err)
			}
			if round == 0 {
				continue // the first may have modules loaded
			}
			for metric, cost := range map[string]cost{"STATUS": status, "VERSION": version, "beside": {wall: status.wall - version.wall}} {
				taken[i][metric] = append(taken[i][metric], milliseconds(cost.wall))
			}
			taken[i]["STATUS CPU"] = append(taken[i]["STATUS CPU"], milliseconds(status.cpu))
		}
	}
	for i, s := range subjects {
		for _, metric := range []string{"STATUS", "STATUS CPU", "VERSION", "beside"} {
			r.results.Add(s.point(scenario, metric), "ms", taken[i][metric]...)
		}
	}
}
