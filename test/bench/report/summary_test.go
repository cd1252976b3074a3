package report

import "testing"

func TestAdd(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, test := range []struct {
		name    string
		samples []float64
		want    Figure
	}{
		{"none", nil, Figure{}},
		{"one", []float64{3}, Figure{N: 1, Median: 3, P95: 3}},
		{"two", []float64{4, 2}, Figure{N: 2, Median: 3, P95: 4}},
		{"odd, unsorted", []float64{9, 1, 5}, Figure{N: 3, Median: 5, P95: 9}},
		{"the 95th of 20 is the largest but one", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 99}, Figure{N: 20, Median: 10.5, P95: 19}},
		{"100 to 1", hundred, Figure{N: 100, Median: 50.5, P95: 95}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Results
			r.Add(Point{}, "", test.samples...)
			if got, _ := r.Find(Point{}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if hundred[0] != 100 {
		t.Error("the samples were sorted in place")
	}
}
