package report

import (
	"encoding/json"
	"slices"
)

// The names of the implementations that reports compare.
const (
	Reference = "reference"
	Debian    = "debian"
	Cnibox    = "cnibox"
	Chain     = "chain"
	NoOps     = "no-ops"
	NoOp      = "no-op"
	// EmptyGo is a program that does nothing at all.
	EmptyGo = "empty Go program"
)

// Results is all that one run found out.
type Results struct {
	// Facts describe the machine and the versions.
	Facts   []Fact   `json:"facts"`
	Figures []Figure `json:"figures"`
}

// Fact is one line about the machine or a version.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Point tells what a figure is of.
type Point struct {
	Scenario string `json:"scenario"`
	// Case is what the scenario varies: a number of attachments, the name of a plugin.
	Case string `json:"case"`
	// Plugins is the implementation.
	Plugins string `json:"plugins"`
	// Metric is what was measured: "ADD" (its wall time), "ADD CPU", "size".
	Metric string `json:"metric"`
}

// Figure is one number that was measured, usually more than once.
type Figure struct {
	Point
	Unit string `json:"unit"`
	Summary
}

// Add records the samples of a figure. No samples are no figure.
func (r *Results) Add(point Point, unit string, samples ...float64) {
	if len(samples) == 0 {
		return
	}
	r.Figures = append(r.Figures, Figure{Point: point, Unit: unit, Summary: Summarize(samples)})
}

// Find returns the figure of a point, if it was measured.
func (r *Results) Find(point Point) (Figure, bool) {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Point == point })
	if i < 0 {
		return Figure{}, false
	}
	return r.Figures[i], true
}

// Ratio returns the median of one figure divided by that of another, if both were measured.
func (r *Results) Ratio(over, under Point) (float64, bool) {
	a, measured := r.Find(over)
	b, measuredToo := r.Find(under)
	if !measured || !measuredToo || b.Median == 0 {
		return 0, false
	}
	return a.Median / b.Median, true
}

// rows returns the points of a scenario, without their metrics, in the order they were measured.
func (r *Results) rows(scenario string) []Point {
	var rows []Point
	for _, f := range r.Figures {
		row := f.Point
		row.Metric = ""
		if f.Scenario == scenario && !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// JSON returns the results for programs, and for a report that is made later.
func (r *Results) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "\t")
	return append(text, '\n'), err
}
