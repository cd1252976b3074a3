package lookup

import (
	"slices"
	"testing"
)

// TestNear finds what may have been meant, the nearest first, among more names than can be listed.
func TestNear(t *testing.T) {
	names := []string{"demo", "demo2", "pods", "web-frontend-1", "web-frontend-2", "10.88.0.2", "eth0", ""}
	for name, want := range map[string][]string{
		"dmo": {"demo"}, "dem": {"demo", "demo2"}, "demo3": {"demo", "demo2"}, "pdos": {"pods"}, "frontend-2": {"web-frontend-2"}, "nothing-like-it": {}, "x": {},
	} {
		if got := Near(names, name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
