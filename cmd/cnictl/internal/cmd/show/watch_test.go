package show

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// drawn returns what a screen of 80 by 24 writes.
func drawn(t *testing.T, s *screen, frame string) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.terminal = write
	if err := s.draw(frame); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	out, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestScreenMarksChanges: lines that have come are marked and listed, those that went are listed; what sums up and how wide columns are is
// no change.
func TestScreenMarksChanges(t *testing.T) {
	text.EnableColors()
	defer text.DisableColors()
	var s screen
	if out := drawn(t, &s, "NAME  STATE\na     up\nb     up\n\n2 things\n"); strings.Contains(out, "\x1b[7m") || strings.Contains(out, " + ") {
		t.Errorf("all is marked as new: %q", out)
	}
	out := drawn(t, &s, "NAME    STATE\na       up\nlonger  up\n\n2 of 3 things\n")
	for _, want := range []string{"\x1b[7mlonger  up", "+ \x1b[0mlonger up", "- \x1b[0mb up"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing: %q", want, out)
		}
	}
	for _, wrong := range []string{"\x1b[7ma", "+ \x1b[0mNAME", "+ \x1b[0m2 of", "\x1b[7m2"} {
		if strings.Contains(out, wrong) {
			t.Errorf("%q is marked: %q", wrong, out)
		}
	}
	if out = drawn(t, &s, "NAME    STATE\na       up\nlonger  up\n\n2 of 3 things\n"); strings.Contains(out, "\x1b[7m") || !strings.Contains(out, "+ \x1b[0mlonger up") {
		t.Errorf("the look after a change: %q", out)
	}
}

// TestScreenFits cuts what a terminal has no room for, and says so.
func TestScreenFits(t *testing.T) {
	var s screen
	out := drawn(t, &s, strings.Repeat(strings.Repeat("x", 100)+"\n", 50))
	if lines := strings.Split(out, "\r\n"); len(lines) != 24 || !strings.Contains(lines[22], "28 more lines") || strings.Count(lines[0], "x") != 78 {
		t.Errorf("%d lines, the last but one %q", len(lines), lines[len(lines)-2])
	}
}
