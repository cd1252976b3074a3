package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTargetRow(t *testing.T) {
	over, under := Point{Metric: "over"}, Point{Metric: "under"}
	for _, test := range []struct {
		name       string
		kind       kind
		least, aim float64
		over       float64 // under is 2
		want       []string
	}{
		{"faster than the aim", faster, 7, 8.5, 20, []string{"7x", "8.5x", "10.0x", "yes, the aim"}},
		{"fast enough", faster, 7, 8.5, 14, []string{"7x", "8.5x", "7.00x", "yes"}},
		{"too slow", faster, 7, 8.5, 13.9, []string{"7x", "8.5x", "6.95x", "**no**"}},
		{"little enough", atMost, 3, 2, 4, []string{"≤ 3x", "≤ 2x", "2.00x", "yes, the aim"}},
		{"nearly too much", atMost, 3, 2, 6, []string{"≤ 3x", "≤ 2x", "3.00x", "yes"}},
		{"too much", atMost, 3, 2, 6.02, []string{"≤ 3x", "≤ 2x", "3.01x", "**no**"}},
		{"a small share", share, 8, 11, 24, []string{"≤ 1/8", "≤ 1/11", "1/12.0", "yes, the aim"}},
		{"a large share", share, 8, 11, 8, []string{"≤ 1/8", "≤ 1/11", "1/4.00", "**no**"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Results
			r.Add(over, "ms", test.over)
			r.Add(under, "ms", 2)
			row := target{"it", over, under, test.kind, test.least, test.aim}.row(&r)
			if diff := cmp.Diff(append([]string{"it"}, test.want...), row); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTargetNotMeasured(t *testing.T) {
	row := targets[0].row(&Results{})
	if row[3] != none || row[4] != "not measured" {
		t.Errorf("got %q", row)
	}
}
