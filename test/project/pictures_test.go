package project

import (
	"regexp"
	"strings"
	"testing"
)

// TestPictures makes sure that pictures of the manual are drawn, since one of letters is cut on a small screen and is noise to a screen reader, that
// each says in words what it shows, and that it can be read on a dark page.
func TestPictures(t *testing.T) {
	pictures := 0
	for _, name := range listed(t, "docs/**.md", "docs/**.svg", "*.md") {
		text := read(t, "../../"+name)
		if strings.HasSuffix(name, ".svg") {
			pictures++
			for _, part := range []string{"<title", "prefers-color-scheme:dark"} {
				if !strings.Contains(text, part) {
					t.Errorf("%s has no %s", name, part)
				}
			}
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			if found := regexp.MustCompile(`[┌┐└┘├┤┬┴┼│╳]|\+-----`).FindString(line); found != "" {
				t.Errorf("%s:%d: %s is of a picture made of letters: draw it as docs/recipes/pictures/*.svg are", name, number, found)
			}
			if strings.Contains(line, "![](") {
				t.Errorf("%s:%d: a picture without words", name, number)
			}
		}
	}
	if pictures < 10 {
		t.Errorf("only %d pictures are found", pictures)
	}
}
