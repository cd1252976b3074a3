package project

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// words are turns of phrase that a reader stumbles over, and what to write in their place.
var words = []struct {
	of      *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bshall\b`), "should, must, or the plain verb"},
	{regexp.MustCompile(`\b(is|are) to be\b`), "must be, or who does it"},
	{regexp.MustCompile(`\bthat of\b[^.;:]*\bthat of\b`), "the noun again"},
	{regexp.MustCompile(`\b(its|ours|theirs)([,;)]|\.(\s|$))`), "the noun with it"},
}

// bareSubject is a word that begins a sentence where a noun would say whom it is about.
var bareSubject = regexp.MustCompile(`(^["\x60]?|[.;] |// |\| )(Who|What) (\w+)[^?]*$`)

// TestWords holds the product's comments and messages, and the manual, to what CONTRIBUTING.md says of English. A line is looked at by itself.
// Pages that are made from tests have the tests' words.
func TestWords(t *testing.T) {
	for _, name := range listed(t, "cmd/**.go", "pkg/**.go", "plugins/**.go", "docs/**.md", "*.md", ":!docs/project/conformance*", ":!*_test.go") {
		text := read(t, "../../"+name)
		if strings.HasSuffix(name, ".go") {
			text = prose(text)
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			if strings.HasPrefix(line, "#") {
				continue
			}
			line = strings.TrimSpace(line)
			for _, w := range words {
				if found := w.of.FindString(line); found != "" {
					t.Errorf("%s:%d: %q: write %s", name, number, strings.TrimSpace(found), w.instead)
				}
			}
			if found := bareSubject.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: write a noun as the subject, such as \"a container that …\"", name, number, strings.TrimSpace(found))
			}
		}
	}
}

// prose returns the comments and strings of Go code, each in its line.
func prose(code string) string {
	file := token.NewFileSet().AddFile("", -1, len(code))
	var s scanner.Scanner
	s.Init(file, []byte(code), nil, scanner.ScanComments)
	var text strings.Builder
	line := 1
	for {
		pos, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return text.String()
		case token.COMMENT, token.STRING:
			at := file.Line(pos)
			text.WriteString(strings.Repeat("\n", at-line) + literal)
			line = at + strings.Count(literal, "\n")
		}
	}
}
