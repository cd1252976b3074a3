package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTargetRow(t *testing.T) {
	over, under := Point{Metric: "over"}, Point{Metric: "under"}
	for _, test := range []struct {
		name  string
		kind  kind
		least float64
		over  float64 // under is 2
		want  []string
	}{
		{"fast enough", faster, 7, 14, []string{"7x", "7.00x", "yes"}},
		{"too slow", faster, 7, 13.9, []string{"7x", "6.95x", "**no**"}},
		{"little enough", atMost, 3, 4, []string{"≤ 3x", "2.00x", "yes"}},
		{"nearly too much", atMost, 3, 6, []string{"≤ 3x", "3.00x", "yes"}},
		{"too much", atMost, 3, 6.02, []string{"≤ 3x", "3.01x", "**no**"}},
		{"a small share", share, 8, 24, []string{"≤ 1/8", "1/12.0", "yes"}},
		{"a large share", share, 8, 8, []string{"≤ 1/8", "1/4.00", "**no**"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Results
			r.Add(over, "ms", test.over)
			r.Add(under, "ms", 2)
			row := target{"it", over, under, test.kind, test.least}.row(&r)
			if diff := cmp.Diff(append([]string{"it"}, test.want...), row); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTargetNotMeasured(t *testing.T) {
	row := targets[0].row(&Results{})
	if row[2] != none || row[3] != "not measured" {
		t.Errorf("got %q", row)
	}
}
