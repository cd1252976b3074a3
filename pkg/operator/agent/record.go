package agent

import (
	"maps"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

// Mend is one repair of what was hit.
type Mend struct {
	Time     time.Time              `json:"time"`
	Hit      string                 `json:"hit"` // what was hit, and by whom
	Outcomes map[repair.Outcome]int `json:"outcomes"`
	Seconds  float64                `json:"seconds"` // from the end of the burst until the last attachment had all back
}

// record counts what the agent did since it started.
type record struct {
	mu       sync.Mutex
	since    time.Time
	repairs  int
	repaired int // attachments
	removed  map[collect.Outcome]int
	last     *Mend
}

func (r *record) begin() { r.since, r.removed = time.Now(), map[collect.Outcome]int{} }

func (r *record) mended(hits hits, outcomes map[repair.Outcome]int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if outcomes[repair.Repaired]+outcomes[repair.Wrong] == 0 {
		return
	}
	r.repairs++
	r.repaired += outcomes[repair.Repaired]
	r.last = &Mend{Time: time.Now(), Hit: hits.text(), Outcomes: outcomes, Seconds: took.Seconds()}
}

func (r *record) collected(o collect.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed[o]++
}

// fill adds the counts to a status.
func (r *record) fill(s *Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Since, s.Repairs, s.Repaired, s.Collected, s.Last = r.since, r.repairs, r.repaired, maps.Clone(r.removed), r.last
}
