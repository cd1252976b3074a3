package report

import (
	"slices"
	"strconv"
)

// plotted is a plot of one metric of a scenario against its cases.
type plotted struct {
	file, title, metric string
	x, y                string // what the axes are
	logX                bool
}

// colours are those of the implementations in plots; who has none is not plotted.
var colours = map[string]string{
	Reference: "#c0392b",
	Debian:    "#e59866",
	Cnibox:    "#2471a3",
	Chain:     "#1e8449",
	NoOps:     "#99a3a4",
	NoOp:      "#d0d3d4",
}

// Plots returns the plots of what was measured, by the names of their files.
func (r *Results) Plots() map[string][]byte {
	plots := map[string][]byte{}
	for _, s := range sections {
		for _, p := range s.plots {
			if lines := r.lines(s.scenario, p.metric); len(lines) > 0 {
				plots[p.file] = plot{title: p.title, x: p.x, y: p.y, logX: p.logX, lines: lines}.svg()
			}
		}
	}
	return plots
}

// lines returns a line for each implementation, in the order they were measured.
func (r *Results) lines(scenario, metric string) []line {
	var lines []line
	for _, f := range r.Figures {
		x, err := strconv.ParseFloat(f.Case, 64)
		colour := colours[f.Plugins]
		if f.Scenario != scenario || f.Metric != metric || err != nil || colour == "" {
			continue
		}
		i := slices.IndexFunc(lines, func(l line) bool { return l.name == f.Plugins })
		if i < 0 {
			i = len(lines)
			lines = append(lines, line{name: f.Plugins, colour: colour})
		}
		lines[i].points = append(lines[i].points, point{x, f.Median})
	}
	return lines
}
