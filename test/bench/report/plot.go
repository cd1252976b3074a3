package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a diagram of one metric of a scenario against its cases. Its y axis is logarithmic: what is compared differs by
// orders of magnitude.
type plot struct {
	file, title, metric string
	x, y                string // what the axes are
	logX                bool
}

// line is what an implementation has in a plot.
type line struct {
	name   string
	points [][2]float64
}

// colours are those of the implementations in plots; who has none is not plotted.
var colours = map[string]string{
	Reference: "#c0392b", Debian: "#e59866", Cnibox: "#2471a3", Chain: "#1e8449", NoOps: "#99a3a4", NoOp: "#d0d3d4",
	Kernel: "#7d6608", "ptp": "#1e8449", "bridge": "#2471a3", "macvlan": "#7d3c98",
}

// plots returns the plots of what was measured, by the names of their files.
func (r *Results) plots() map[string]string {
	plots := map[string]string{}
	for _, s := range slices.Concat(sections, many) {
		for _, p := range s.plots {
			if lines := r.lines(s.scenario, p.metric); len(lines) > 0 {
				plots[p.file] = p.svg(lines)
			}
		}
	}
	return plots
}

// lines returns a line for each implementation, in the order they were measured.
func (r *Results) lines(scenario, metric string) (lines []line) {
	for _, f := range r.Figures {
		x, err := strconv.ParseFloat(f.Case, 64)
		if f.Scenario != scenario || f.Metric != metric || err != nil || colours[f.Plugins] == "" {
			continue
		}
		i := slices.IndexFunc(lines, func(l line) bool { return l.name == f.Plugins })
		if i < 0 {
			i, lines = len(lines), append(lines, line{name: f.Plugins})
		}
		lines[i].points = append(lines[i].points, [2]float64{x, f.Median})
	}
	return lines
}

// plotStyle has the colours of a light page, and of a dark one, on which lines are lighter.
const plotStyle = `<style>
.page{fill:#f3f6f7}.axis{fill:none;stroke:#566573}.grid{stroke:#d9e1e4}text{fill:#17242b}
@media (prefers-color-scheme:dark){.page{fill:#162126}.axis{stroke:#9dadb3}.grid{stroke:#2b3a40}text{fill:#e6eef0}polyline,circle,.key{filter:brightness(1.6)}}
</style>`

// The area of the lines in the picture, in pixels: what is around it is for titles and numbers.
const width, height, left, right, top, bottom = 720, 420, 70.0, 700.0, 70.0, 370.0

func (p plot) svg(lines []line) string {
	var xs, ys []float64
	for _, l := range lines {
		for _, q := range l.points {
			xs, ys = append(xs, q[0]), append(ys, q[1])
		}
	}
	slices.Sort(xs)
	xs, ys = slices.Compact(xs), scale(slices.Min(ys), slices.Max(ys))
	atX := func(x float64) float64 { return left + place(x, xs, p.logX)*(right-left) }
	atY := func(y float64) float64 { return bottom - place(y, ys, true)*(bottom-top) }

	var b strings.Builder
	add := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	label := func(x, y float64, attributes, text string) {
		add(`<text x="%.1f" y="%.1f"%s>%s</text>`, x, y, attributes, escape(text))
	}
	const middle = ` text-anchor="middle"`
	add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`, width, height)
	add(`<title>%s</title>`, escape(p.title))
	add(plotStyle)
	add(`<rect class="page" width="%d" height="%d" rx="10"/>`, width, height)
	label(left, 24, ` font-size="16"`, p.title)
	for _, y := range ys {
		add(`<path d="M%g %.1fH%g" class="grid"/>`, left, atY(y), right)
		label(left-8, atY(y)+4, ` text-anchor="end"`, fmt.Sprintf("%g", y))
	}
	for _, x := range xs {
		add(`<path d="M%.1f %gv5" class="axis"/>`, atX(x), bottom)
		label(atX(x), bottom+18, middle, grouped(fmt.Sprintf("%g", x)))
	}
	add(`<path d="M%g %gV%gH%g" class="axis"/>`, left, top, bottom, right)
	label((left+right)/2, height-12, middle, p.x)
	label(0, 0, fmt.Sprintf(` transform="translate(20 %g) rotate(-90)"`, (top+bottom)/2)+middle, p.y)
	for i, l := range lines {
		var path []string
		for _, q := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", atX(q[0]), atY(q[1])))
		}
		add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(path, " "), colours[l.name])
		for _, q := range l.points {
			add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s: %s</title></circle>`, atX(q[0]), atY(q[1]), colours[l.name], escape(l.name), number(q[1]))
		}
		add(`<path d="M%g 46h18" class="key" stroke="%s" stroke-width="3"/>`, left+float64(i)*100, colours[l.name])
		label(left+float64(i)*100+24, 50, "", l.name)
	}
	return b.String() + "</svg>\n"
}

// place returns where a value is between the first and the last of a scale, from 0 to 1.
func place(v float64, scale []float64, log bool) float64 {
	low, high := scale[0], scale[len(scale)-1]
	if log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	if high == low {
		return 0.5
	}
	return (v - low) / (high - low)
}

// scale returns values that are 1, 2 or 5 times a power of ten, from the last that is not above low to the first that is
// not below high.
func scale(low, high float64) (values []float64) {
	for power := math.Floor(math.Log10(low)); len(values) == 0 || values[len(values)-1] < high; power++ {
		for _, v := range []float64{1, 2, 5} {
			v *= math.Pow10(int(power))
			if v <= low {
				values = values[:0]
			}
			if len(values) == 0 || values[len(values)-1] < high {
				values = append(values, v)
			}
		}
	}
	return values
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
