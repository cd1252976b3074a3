package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRatio(t *testing.T) {
	r := sample()
	ours, theirs := Point{"node", "0", Cnibox, "ADD"}, Point{"node", "0", Reference, "ADD"}
	if q, measured := r.Ratio(theirs, ours); !measured || q != 10 {
		t.Errorf("got %v, %v", q, measured)
	}
	r.Add(Point{Scenario: "zero"}, "ms", 0)
	for _, under := range []Point{{Scenario: "none"}, {Scenario: "zero"}} {
		if q, measured := r.Ratio(ours, under); measured {
			t.Errorf("divided by %v: %v", under, q)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r := sample()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	// What was written by hand is in the next report.
	if err := os.WriteFile(filepath.Join(dir, NotesFile), []byte("By hand."), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "results.json", "attachments-add.svg", NotesFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	var got Results
	figures, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil || json.Unmarshal(figures, &got) != nil {
		t.Fatalf("%v: %s", err, figures)
	}
	if diff := cmp.Diff(*r, got); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nBy hand.\n") {
		t.Error("the report lacks the notes")
	}
}
