// Package pagetest compares what commands print with what the manual shows of them.
package pagetest

import (
	"regexp"
	"strings"
)

// LooksLike reports whether what was printed is what a page shows: "..." and "…" stand for anything in a line, and alone for any lines.
// How columns are set apart does not matter.
func LooksLike(printed, shown string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(shown, "…", "...")) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "..." {
			pattern.WriteString(`(?:[^\n]*\n)*`)
			continue
		}
		line = strings.ReplaceAll(regexp.QuoteMeta(line), ` \.\.\.`, `(?: [^\n]*)?`) // it may stand for nothing
		pattern.WriteString(strings.ReplaceAll(line, `\.\.\.`, `[^\n]*`) + `\n`)
	}
	var tidy strings.Builder
	for line := range strings.Lines(printed) {
		tidy.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(tidy.String())
}
