// Package report keeps what the benchmark measured, and shows it: as JSON, as tables and as plots.
package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// The names of the implementations that reports compare.
const (
	Reference = "reference"
	Debian    = "debian"
	Cnibox    = "cnibox"
	Chain     = "chain"
	NoOps     = "no-ops"
	NoOp      = "no-op"
	Netavark  = "netavark"
	Kernel    = "kernel alone"
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
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Median float64 `json:"median"`
	// P95 always is one that was measured: of ten samples the largest.
	P95 float64 `json:"p95"`
}

// Add records the samples of a figure. No samples are no figure.
func (r *Results) Add(point Point, unit string, samples ...float64) {
	n := len(samples)
	if n == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(samples))
	r.Figures = append(r.Figures, Figure{
		Point: point, Unit: unit, N: n,
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		P95:    sorted[int(math.Ceil(0.95*float64(n)))-1],
	})
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

// NotesFile is a file in the report's directory that is written by hand; its text closes the part on how the time grows.
const NotesFile = "notes.md"

// Write writes the report into a directory: README.md, results.json and the plots.
func (r *Results) Write(dir string) error {
	notes, err := os.ReadFile(filepath.Join(dir, NotesFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	figures, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	files := r.files(string(notes))
	files["results.json"] = string(figures) + "\n"
	return writeFiles(dir, files)
}

// The files of the report about many attachments, whose figures come from several runs. What is written by hand closes the page.
const manyFigures, manyPage, manyNotes = "many.json", "many.md", "many-notes.md"

// MergeMany adds these results to those about many attachments that are in a directory, in place of the ones of the same cases, and writes
// the page about them anew.
func (r *Results) MergeMany(dir string) error {
	all, err := readMany(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	of := func(f Figure) Point { return Point{Scenario: f.Scenario, Case: f.Case, Plugins: f.Plugins} }
	all.Figures = slices.DeleteFunc(all.Figures, func(old Figure) bool {
		return slices.ContainsFunc(r.Figures, func(f Figure) bool { return of(f) == of(old) })
	})
	all.Facts, all.Figures = r.Facts, append(all.Figures, r.Figures...)
	slices.SortStableFunc(all.Figures, func(a, b Figure) int {
		x, _ := strconv.Atoi(a.Case)
		y, _ := strconv.Atoi(b.Case)
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(x, y))
	})
	return all.writeMany(dir)
}

func readMany(dir string) (all Results, err error) {
	text, err := os.ReadFile(filepath.Join(dir, manyFigures))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

func (r *Results) writeMany(dir string) error {
	figures, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	notes, err := os.ReadFile(filepath.Join(dir, manyNotes))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files := r.manyFiles(string(notes))
	files[manyFigures] = string(figures) + "\n"
	return writeFiles(dir, files)
}

// manyFiles returns the page about many attachments, and its plots.
func (r *Results) manyFiles(notes string) map[string]string {
	files := r.plots()
	files[manyPage] = r.manyMarkdown(notes)
	return files
}

func writeFiles(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the parts of the report that are made from the figures, by the names of their files.
func (r *Results) files(notes string) map[string]string {
	files := r.plots()
	if svg := r.overview(); svg != "" {
		files[OverviewFile] = svg
	}
	files["README.md"] = r.markdown(notes)
	return files
}
