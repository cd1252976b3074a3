package report

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlots(t *testing.T) {
	plots := sample().Plots()
	if got := slices.Sorted(maps.Keys(plots)); !slices.Equal(got, []string{"attachments-add.svg"}) {
		t.Fatalf("plots of what was measured: %v", got)
	}
	text := string(plots["attachments-add.svg"])
	if err := wellFormed(text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for element, want := range map[string]int{"<polyline": 2, "<circle": 4, "stroke-width=\"3\"": 2, ">1,000<": 1} {
		if got := strings.Count(text, element); got != want {
			t.Errorf("the plot has %d of %q, want %d", got, element, want)
		}
	}
}

func wellFormed(text string) error {
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestPlotEscapes(t *testing.T) {
	p := plot{title: "a < b & c", lines: []line{{name: "<x>", points: []point{{1, 1}}}}}
	if err := wellFormed(string(p.svg())); err != nil {
		t.Error(err)
	}
}

// Whatever is plotted stays inside of the axes.
func TestPlotPlaces(t *testing.T) {
	p := plot{logX: true, lines: []line{{points: []point{{1, 0.7}, {64, 3100}}}}}
	xs, ys := p.ranges()
	for _, q := range p.lines[0].points {
		for name, place := range map[string]float64{"x": xs.place(q.x), "y": ys.place(q.y)} {
			if place < 0 || place > 1 {
				t.Errorf("%s of %v is at %v", name, q, place)
			}
		}
	}
	if at := xs.place(8); math.Abs(at-0.5) > 1e-9 {
		t.Errorf("8 is at %v between 1 and 64, not in the middle", at)
	}
}

func TestMarks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      []float64
	}{
		{3, 40, []float64{2, 5, 10, 20, 50}},
		{1, 1, []float64{1}},
		{0.04, 0.11, []float64{0.02, 0.05, 0.1, 0.2}},
		{1000, 1001, []float64{1000, 2000}},
	} {
		got := marks(scale{low: roundDown(test.low), high: roundUp(test.high)})
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9*(a+b) })); diff != "" {
			t.Errorf("%g…%g: -want +got:\n%s", test.low, test.high, diff)
		}
	}
}
