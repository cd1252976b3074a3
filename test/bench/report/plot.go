package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a diagram of lines. Its y axis is logarithmic: what is compared differs by orders of magnitude.
type plot struct {
	title string
	x, y  string // what the axes are
	logX  bool
	lines []line
}

type line struct {
	name, colour string
	points       []point
}

type point struct{ x, y float64 }

// Sizes in pixels: the picture, and the margins around the area of the lines.
const (
	width, height                        = 720, 420
	left, right, top, bottom     float64 = 70, 20, 70, 50
	areaRight, areaBottom                = width - right, height - bottom
	gridColour, axisColour, text         = "#e5e7e9", "#566573", "#212f3c"
)

// svg draws the plot.
func (p plot) svg() []byte {
	xs, ys := p.ranges()
	at := func(q point) (float64, float64) {
		return left + xs.place(q.x)*(areaRight-left), areaBottom - ys.place(q.y)*(areaBottom-top)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">`+"\n", width, height, text)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%g" y="24" font-size="16">%s</text>`+"\n", left, escape(p.title))
	for _, y := range marks(ys) {
		_, py := at(point{xs.low, y})
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="%s"/>`+"\n", left, py, areaRight, gridColour)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left-8, py+4, plain(y))
	}
	for _, x := range p.ticks() {
		px, _ := at(point{x, ys.low})
		fmt.Fprintf(&b, `<path d="M%.1f %gv5" stroke="%s"/>`+"\n", px, areaBottom, axisColour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", px, areaBottom+18, grouped(plain(x)))
	}
	fmt.Fprintf(&b, `<path d="M%g %gV%gH%g" fill="none" stroke="%s"/>`+"\n", left, top, areaBottom, areaRight, axisColour)
	fmt.Fprintf(&b, `<text x="%g" y="%d" text-anchor="middle">%s</text>`+"\n", (left+areaRight)/2, height-12, escape(p.x))
	fmt.Fprintf(&b, `<text transform="translate(20 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+areaBottom)/2, escape(p.y))
	for i, l := range p.lines {
		l.draw(&b, at)
		l.legend(&b, left+float64(i)*100)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (l line) draw(b *bytes.Buffer, at func(point) (float64, float64)) {
	var path, dots strings.Builder
	for i, q := range l.points {
		x, y := at(q)
		if i > 0 {
			path.WriteByte(' ')
		}
		fmt.Fprintf(&path, "%.1f,%.1f", x, y)
		fmt.Fprintf(&dots, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s: %s</title></circle>`+"\n", x, y, l.colour, escape(l.name), number(q.y))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n%s", path.String(), l.colour, dots.String())
}

func (l line) legend(b *bytes.Buffer, x float64) {
	fmt.Fprintf(b, `<path d="M%g 46h18" stroke="%s" stroke-width="3"/>`+"\n", x, l.colour)
	fmt.Fprintf(b, `<text x="%g" y="50">%s</text>`+"\n", x+24, escape(l.name))
}

// scale maps values to 0…1.
type scale struct {
	low, high float64
	log       bool
}

func (s scale) place(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	if high == low {
		return 0.5
	}
	return (v - low) / (high - low)
}

// ranges returns the scales of the axes: x as wide as the lines, y to the next of 1, 2, 5, 10, ….
func (p plot) ranges() (xs, ys scale) {
	xs = scale{math.Inf(1), math.Inf(-1), p.logX}
	ys = scale{math.Inf(1), math.Inf(-1), true}
	for _, l := range p.lines {
		for _, q := range l.points {
			xs.low, xs.high = min(xs.low, q.x), max(xs.high, q.x)
			ys.low, ys.high = min(ys.low, q.y), max(ys.high, q.y)
		}
	}
	ys.low, ys.high = roundDown(ys.low), roundUp(ys.high)
	return xs, ys
}

// ticks are the x values of all points.
func (p plot) ticks() []float64 {
	var ticks []float64
	for _, l := range p.lines {
		for _, q := range l.points {
			ticks = append(ticks, q.x)
		}
	}
	slices.Sort(ticks)
	return slices.Compact(ticks)
}

// marks returns the values that are 1, 2 or 5 times a power of ten, of a scale that begins with one.
func marks(s scale) []float64 {
	var all []float64
	for v := s.low; v <= s.high*1.001; v = next(v) {
		all = append(all, v)
	}
	return all
}

// steps are the values of a decade that get a mark.
var steps = []float64{1, 2, 5, 10}

// roundDown returns the largest mark that is not above v.
func roundDown(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	mark := power
	for _, s := range steps {
		if s*power <= v {
			mark = s * power
		}
	}
	return mark
}

// roundUp returns the smallest mark that is not below v.
func roundUp(v float64) float64 {
	if down := roundDown(v); down < v {
		return next(down)
	}
	return v
}

// next returns the mark above a mark.
func next(mark float64) float64 { return roundDown(mark * 2.5001) }

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
