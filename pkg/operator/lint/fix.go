package lint

import (
	"bytes"
	"slices"
)

// edit puts another text in place of a piece.
type edit struct {
	at, end int
	text    string
}

// mostRounds bounds how often a fixed text is looked at again: each round mends what the one before has uncovered.
const mostRounds = 20

// Fix mends a file's mechanical mistakes, and leaves all other bytes of it as they are. It returns what it has mended.
func Fix(name string, text []byte, o Options) (fixed []byte, done []Finding) {
	fixed = text
	for range mostRounds {
		next, mended := fixOnce(fixed, Text(name, fixed, o))
		if mended == nil {
			break
		}
		fixed, done = next, append(done, mended...)
	}
	return fixed, done
}

// fixOnce makes the edits of findings that touch no other's.
func fixOnce(text []byte, findings []Finding) (fixed []byte, done []Finding) {
	var edits []edit
	for _, f := range findings {
		clash := slices.ContainsFunc(f.edits, func(e edit) bool {
			return slices.ContainsFunc(edits, func(other edit) bool { return e.at <= other.end && other.at <= e.end })
		})
		if f.Fixable && !clash {
			edits = append(edits, f.edits...)
			done = append(done, f)
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.at - b.at })
	var b bytes.Buffer
	at := 0
	for _, e := range edits {
		b.Write(text[at:e.at])
		b.WriteString(e.text)
		at = e.end
	}
	b.Write(text[at:])
	return b.Bytes(), done
}
