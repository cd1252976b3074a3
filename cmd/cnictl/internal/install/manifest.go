package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const manifestFile = ".cnibox.json"

// manifest says which names install has made. Whether what is there is still
// ours is seen from the files themselves.
type manifest struct {
	Names []string `json:"names"` // sorted, without cnibox itself
}

// readManifest returns an empty manifest when there is none.
func (d *directory) readManifest() (manifest, error) {
	var m manifest
	path := d.join(manifestFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s is damaged: %w; remove it, and install again", path, err)
	}
	if len(m.Names) == 0 {
		return m, nil
	}
	if err := checkNames(m.Names); err != nil {
		return m, fmt.Errorf("%s is damaged: %w; remove it, and install again", path, err)
	}
	return m, nil
}

func (m manifest) text() []byte {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(err) // strings always marshal
	}
	return append(text, '\n')
}
