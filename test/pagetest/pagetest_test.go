package pagetest

import "testing"

// TestLooksLike makes sure that a page can't show what is not so.
func TestLooksLike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		printed, shown string
		want           bool
	}{
		{"", "", true},
		{"a\n", "", false},
		{"", "a\n", false},
		{"a   b \n", "a b\n", true},
		{"a b\n", "a c\n", false},
		{"took 3 ms\n", "took ... ms\n", true},
		{"took 3 s\n", "took ... ms\n", false},
		{"a\nb\nc\n", "a\n...\nc\n", true},
		{"a\nc\n", "a\n...\nc\n", true},
		{"a\nb\n", "a\n...\nc\n", false},
		{"a.b\n", "a.b\n", true},
		{"axb\n", "a.b\n", false},
		{"no end", "no end\n", true},
		{"eth0 DOWN 10.0.0.2/24\n", "eth0 … 10.0.0.2/24 …", true},
		{"eth0@if7         UP    10.0.0.2/24 fe80::1/64 \n", "eth0@… UP 10.0.0.2/24 …", true},
		{"eth0@if7         DOWN  10.0.0.2/24 fe80::1/64 \n", "eth0@… UP 10.0.0.2/24 …", false},
		{"eth0 UP\neth1 UP\n", "…\neth1 UP", true},
	} {
		if got := LooksLike(c.printed, c.shown); got != c.want {
			t.Errorf("%q looks like %q: %v", c.printed, c.shown, got)
		}
	}
}
