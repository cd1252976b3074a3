package report

import "testing"

func TestSummarize(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, test := range []struct {
		name    string
		samples []float64
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{3}, Summary{1, 3, 3}},
		{"two", []float64{4, 2}, Summary{2, 3, 4}},
		{"odd, unsorted", []float64{9, 1, 5}, Summary{3, 5, 9}},
		{"the 95th of 20 is the largest but one", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 99}, Summary{20, 10.5, 19}},
		{"100 to 1", hundred, Summary{100, 50.5, 95}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Summarize(test.samples); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestSummarizeLeavesSamplesAlone(t *testing.T) {
	samples := []float64{3, 1, 2}
	Summarize(samples)
	if samples[0] != 3 || samples[1] != 1 {
		t.Errorf("samples are now %v", samples)
	}
}
