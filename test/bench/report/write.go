package report

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// NotesFile is a file in the report's directory that is written by hand; its text is put below the marks.
const NotesFile = "notes.md"

// Write writes the report into a directory: README.md, results.json and the plots.
func (r *Results) Write(dir string) error {
	notes, err := os.ReadFile(filepath.Join(dir, NotesFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	figures, err := r.JSON()
	if err != nil {
		return err
	}
	files := r.Plots()
	files["README.md"] = []byte(r.Markdown(string(notes)))
	files["results.json"] = figures
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
