package report

import (
	"fmt"
	"strings"
)

// OverviewFile is the picture of what a runtime waits for, in a few bars. The front pages show it.
const OverviewFile = "overview.svg"

// bars are the groups of the overview, and what each has a bar for.
var (
	groups = []struct{ title, scenario, cased, metric string }{
		{"ADD on an empty node", "node", "0", "ADD"},
		{"DEL on an empty node", "node", "0", "DEL"},
		{"ADD with 1,000 attachments there", "attachments", "1000", "ADD"},
		{"DEL with 1,000 attachments there", "attachments", "1000", "DEL"},
	}
	bars = []struct{ plugins, name string }{
		{Reference, "reference plugins"},
		{Cnibox, "cnibox"},
		{Chain, "cnibox, one chain entry"},
	}
)

// overviewStyle has colours for a light page and for a dark one. The picture has a background of its own, because a page's
// colours may be others than those the reader's system asks for.
const overviewStyle = `<style>
text{font:13px system-ui,sans-serif;fill:#17242b}.title{font-size:17px;font-weight:650}.soft{fill:#45545c}.page{fill:#f3f6f7}
.bar0{fill:#8b9aa1}.bar1{fill:#0b6e80}.bar2{fill:#c8660f}
@media (prefers-color-scheme:dark){text{fill:#e6eef0}.soft{fill:#b3c1c6}.page{fill:#162126}.bar0{fill:#7d8d94}.bar1{fill:#4fb9c9}.bar2{fill:#ffb454}}
</style>`

// overview draws the bars, with their figures. It is empty if one of them was not measured.
func (r *Results) overview() string {
	const wide, first, from, room, high, between = 760, 96, 40, 560.0, 17, 26
	var most float64
	for _, g := range groups {
		for _, b := range bars {
			f, measured := r.Find(Point{g.scenario, g.cased, b.plugins, g.metric})
			if !measured {
				return ""
			}
			most = max(most, f.Median)
		}
	}

	var svg strings.Builder
	add := func(format string, a ...any) { fmt.Fprintf(&svg, format+"\n", a...) }
	tall := first + len(groups)*(len(bars)*high+between+14) + 4
	add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`, wide, tall)
	add(`<title>What a runtime waits for, in milliseconds</title>`)
	add("%s", overviewStyle)
	add(`<rect class="page" width="%d" height="%d" rx="10"/>`, wide, tall)
	add(`<text class="title" x="%d" y="36">What a runtime waits for, in milliseconds</text>`, from)
	for i, b := range bars {
		add(`<rect class="bar%d" x="%d" y="55" width="13" height="13" rx="2"/><text x="%d" y="66">%s</text>`, i, from+i*190, from+i*190+19, b.name)
	}
	y := first
	for _, g := range groups {
		add(`<text class="soft" x="%d" y="%d">%s</text>`, from, y+12, escape(g.title))
		y += 20
		for i, b := range bars {
			f, _ := r.Find(Point{g.scenario, g.cased, b.plugins, g.metric})
			w := f.Median / most * room
			add(`<rect class="bar%d" x="%d" y="%d" width="%.1f" height="%d" rx="2"/><text x="%.1f" y="%d">%s</text>`,
				i, from, y, w, high-3, from+w+8, y+high-5, number(f.Median))
			y += high
		}
		y += between - 6
	}
	return svg.String() + "</svg>\n"
}
