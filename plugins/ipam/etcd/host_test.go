package etcd

import (
	"testing"
	"time"
)

// TestFreshLease shows when a lease has to be renewed: after a tenth of the time for which it was granted, or for which it is to be.
func TestFreshLease(t *testing.T) {
	for _, tt := range []struct {
		name           string
		granted, grace time.Duration
		ago            time.Duration
		want           bool
	}{
		{"just now", time.Hour, time.Hour, time.Second, true},
		{"a tenth of the grace ago", time.Hour, time.Hour, 6*time.Minute + time.Second, false},
		{"in the future", time.Hour, time.Hour, -time.Minute, false},
		{"granted for less than is configured by now", time.Minute, time.Hour, 7 * time.Second, false},
		{"granted for more", time.Hour, time.Minute, 7 * time.Second, false},
	} {
		p := &pool{settings: &settings{grace: tt.grace}, notes: notes{t.TempDir()}}
		if err := p.writeHost(joined{"node1", 7, int64(tt.granted / time.Second), time.Now().Add(-tt.ago)}); err != nil {
			t.Fatal(err)
		}
		if got := p.freshLease() != 0; got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
