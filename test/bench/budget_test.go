package bench

import (
	"testing"

	"github.com/cnibox/cnibox/test/bench/report"
)

// budgets are the most that an operation on the usual network may do. They are counted and not timed: a change that makes
// operations slower shows on any machine. Whoever gets below one lowers it.
var budgets = map[string]map[string]tally{
	report.Cnibox: {
		"ADD":   {execs: 3, processes: 0, sends: 25, messages: 48},
		"CHECK": {execs: 3, processes: 0, sends: 13, messages: 29},
		"DEL":   {execs: 4, processes: 1, sends: 16, messages: 36},
	},
	report.Chain: {
		"ADD":   {execs: 1, processes: 0, sends: 25, messages: 48},
		"CHECK": {execs: 1, processes: 0, sends: 13, messages: 29},
		"DEL":   {execs: 2, processes: 1, sends: 16, messages: 36},
	},
}

func TestBudget(t *testing.T) {
	adoptOrphans(t)
	r := &runner{programs: buildPrograms(t), profile: full, random: newRandom()}
	for _, i := range implementations {
		budget, ok := budgets[i.name]
		if !ok {
			continue
		}
		s := r.newSubject(t, i, usual(hostLocal()), "")
		pods := r.makePods(t, s.Host, 2)
		r.warmUp(t, s, pods[0])
		for _, verb := range verbs {
			got, err := s.traced(t, verb, s.conf(pods[1], measuredPort))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: %+v", i.name, verb, got)
			if most := budget[verb]; got.exceeds(most) {
				t.Errorf("%s of %s is over its budget:\n%+v, and may be\n%+v", verb, i.name, got, most)
			}
		}
	}
}

// exceeds tells whether anything is more than in most. System calls are not compared: Go's runtime makes more or fewer of them.
func (t tally) exceeds(most tally) bool {
	return t.execs > most.execs || t.processes > most.processes || t.sends > most.sends || t.messages > most.messages
}
