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
	plots := sample().plots()
	if got := slices.Sorted(maps.Keys(plots)); !slices.Equal(got, []string{"attachments-add.svg"}) {
		t.Fatalf("plots of what was measured: %v", got)
	}
	text := plots["attachments-add.svg"]
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
	p := plot{title: "a < b & c"}
	if err := wellFormed(p.svg([]line{{name: "<x>", points: [][2]float64{{1, 1}}}})); err != nil {
		t.Error(err)
	}
}

func TestPlace(t *testing.T) {
	for _, test := range []struct {
		v    float64
		log  bool
		want float64
	}{{1, true, 0}, {8, true, 0.5}, {64, true, 1}, {32.5, false, 0.5}} {
		if got := place(test.v, []float64{1, 2, 64}, test.log); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%v is at %v between 1 and 64, not at %v", test.v, got, test.want)
		}
	}
	if got := place(1, []float64{1}, true); got != 0.5 {
		t.Errorf("a single value is at %v", got)
	}
}

func TestScale(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      []float64
	}{
		{3, 40, []float64{2, 5, 10, 20, 50}},
		{5, 40, []float64{5, 10, 20, 50}},
		{1, 1, []float64{1}},
		{7, 9, []float64{5, 10}},
		{0.04, 0.11, []float64{0.02, 0.05, 0.1, 0.2}},
		{1000, 1001, []float64{1000, 2000}},
	} {
		got := scale(test.low, test.high)
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9*(a+b) })); diff != "" {
			t.Errorf("%g…%g: -want +got:\n%s", test.low, test.high, diff)
		}
	}
}
