package netlab

import "testing"

// TestSample makes sure that one case of each few is tried, and that a test's name chooses which.
func TestSample(t *testing.T) {
	first := map[int]bool{}
	for _, name := range []string{"tap", "bridge", "sbr", "vrf", "tuning", "ptp"} {
		tried := 0
		for number := range 12 {
			if inSample(name, number, 3) {
				first[number%3] = true
				tried++
			}
		}
		if tried != 4 {
			t.Errorf("%s tries %d of 12 cases, not 4", name, tried)
		}
	}
	if len(first) == 1 {
		t.Error("all tests try the same cases")
	}
}
