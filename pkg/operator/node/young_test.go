package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestIsYoung: what a clock that was set since says of the next minute is young, too.
func TestIsYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		for age, want := range map[time.Duration]bool{-61 * time.Second: false, -59 * time.Second: true, 0: true, 59 * time.Second: true, 61 * time.Second: false} {
			if got := IsYoung(time.Now().Add(-age)); got != want {
				t.Errorf("at an age of %v: %v", age, got)
			}
		}
	})
}
