package report

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var write = flag.Bool("write", false, "write the checked-in report anew, from its results")

const checkedIn = "../../../docs/project/benchmarks"

// The tables and pictures that readers see are of the results beside them.
func TestReportIsOfItsResults(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkedIn, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var results Results
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	all, err := readMany(checkedIn)
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := errors.Join(results.Write(checkedIn), all.writeMany(checkedIn)); err != nil {
			t.Fatal(err)
		}
	}
	notes, err := os.ReadFile(filepath.Join(checkedIn, NotesFile))
	if err != nil {
		t.Fatal(err)
	}
	manyNotes, err := os.ReadFile(filepath.Join(checkedIn, manyNotes))
	if err != nil {
		t.Fatal(err)
	}
	files := results.files(string(notes))
	maps.Copy(files, all.manyFiles(string(manyNotes)))
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(checkedIn, name))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what its results make; run `make charts`\n-made +there:\n%s", name, diff)
		}
	}
}

// Without one of its figures there is no overview: an empty bar would look like a fast one.
func TestOverviewIsWhole(t *testing.T) {
	if svg := sample().overview(); svg != "" {
		t.Errorf("drawn without figures of DEL:\n%s", svg)
	}
}
