package ui

import "encoding/json"

// Files is what the commands that put files into their places print with --json.
type Files struct {
	DryRun bool   `json:"dryRun"` // nothing was done: it is what would be
	Files  []File `json:"files"`
	Error  string `json:"error,omitempty"` // because of which not all was done
}

// File is what became of a file.
type File struct {
	Path    string          `json:"path"`
	Outcome Outcome         `json:"outcome"`
	Why     string          `json:"why,omitempty"`
	Content json.RawMessage `json:"content,omitempty"` // of a network's file that is made
}

// Outcome is what was done with a file.
type Outcome string

// The outcomes.
const (
	Written   Outcome = "written"   // it was put there
	Replaced  Outcome = "replaced"  // the same, in the place of somebody else's file, which is kept
	Unchanged Outcome = "unchanged" // it was there already
	Left      Outcome = "left"      // it is somebody else's, and stays
	Removed   Outcome = "removed"
	Restored  Outcome = "restored" // the file that was kept is back
)
