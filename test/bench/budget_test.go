package bench

import (
	"fmt"
	"testing"

	"github.com/cnibox/cnibox/test/bench/report"
)

// budgets are the most that an operation on the usual network may do. They are counted and not timed: a change that makes
// operations slower shows on any machine. Whoever gets below one lowers it.
var budgets = map[string]map[string]tally{
	report.Cnibox: {
		"ADD":   {execs: 3, processes: 0, sends: 21, messages: 46},
		"CHECK": {execs: 3, processes: 0, sends: 18, messages: 36},
		"DEL":   {execs: 4, processes: 1, sends: 17, messages: 38},
	},
	report.Chain: {
		"ADD":   {execs: 1, processes: 0, sends: 21, messages: 46},
		"CHECK": {execs: 1, processes: 0, sends: 18, messages: 36},
		"DEL":   {execs: 2, processes: 1, sends: 17, messages: 38},
	},
}

func TestBudget(t *testing.T) {
	r := newRunner(t, full)
	for _, i := range implementations {
		budget, ok := budgets[i.name]
		if !ok {
			continue
		}
		s := r.newSubject(t, i, usual(hostLocal), "")
		pods := r.makePods(t, s.Host, 6)
		r.warmUp(t, s, pods[0])
		over := "none was traced"
		// DEL asks whether the link is gone as often as a busy kernel keeps it waiting: the best of some pods counts.
		for n := 1; over != "" && n < len(pods); n++ {
			over = ""
			for _, verb := range verbs {
				got := s.traced(t, verb, s.conf(pods[n], measuredPort))
				t.Logf("%s %s: %+v", i.name, verb, got)
				if most := budget[verb]; got.exceeds(most) {
					over += fmt.Sprintf("\n%s of %s is over its budget:\n%+v, and may be\n%+v", verb, i.name, got, most)
				}
			}
		}
		if over != "" {
			t.Error(over)
		}
	}
}

// exceeds reports whether anything is more than in most. System calls are not compared: Go's runtime makes more or fewer of them.
func (t tally) exceeds(most tally) bool {
	return t.execs > most.execs || t.processes > most.processes || t.sends > most.sends || t.messages > most.messages
}
