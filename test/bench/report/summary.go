package report

import (
	"math"
	"slices"
)

// Summary is what is kept of the samples of one figure.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
}

// Summarize sums samples up. Without samples it is the zero Summary.
func Summarize(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	return Summary{N: len(sorted), Median: median(sorted), P95: nearestRank(sorted, 0.95)}
}

// median is the mean of the two in the middle where there are two.
func median(sorted []float64) float64 {
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// nearestRank is the least sample that the share p of all does not exceed. It always is one that was measured: of ten
// samples the 95th percentile is the largest.
func nearestRank(sorted []float64, p float64) float64 {
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}
