package conformance

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
)

//go:embed page.html
var pageText string

// pageTemplate is one file with all that it needs, and nothing that is fetched.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"failuresFirst": func(rows []*verdict) []*verdict {
		rank := map[string]int{"failed": 0, "passed": 1, "skipped": 2}
		return slices.SortedStableFunc(slices.Values(rows), func(a, b *verdict) int { return rank[a.Outcome()] - rank[b.Outcome()] })
	},
	"seconds": seconds,
}).Parse(pageText))

// htmlPage writes a report as a page.
func htmlPage(out io.Writer, r *report) error { return pageTemplate.Execute(out, r) }
