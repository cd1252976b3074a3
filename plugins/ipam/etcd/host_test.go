package etcd

import (
	"testing"
	"time"

	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
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
		p := &pool{Settings: &settings.Settings{Grace: tt.grace}, Dir: notes.Dir{Path: t.TempDir()}}
		if err := p.WriteHost(notes.Joined{Host: "node1", Lease: 7, Seconds: int64(tt.granted / time.Second), Renewed: time.Now().Add(-tt.ago)}); err != nil {
			t.Fatal(err)
		}
		if got := p.freshLease() != 0; got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
