package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Removal is what Uninstall did.
type Removal struct {
	Dir      string
	Removed  []string // names that are gone
	Restored []string // names that are again what they were before Install
	Left     []string // names that somebody has put other files at since
	Kept     []string // of Left: what Install had replaced, still in .cnibox-replaced
}

// Uninstall removes what Install has made and brings back what it had
// replaced. It leaves what others have put there since, and can be repeated
// after a failure.
func Uninstall(path string) (*Removal, error) {
	dir, err := open(path)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	m, err := dir.readManifest()
	if err != nil {
		return nil, err
	}
	if len(m.Names) == 0 {
		return nil, fmt.Errorf("%s has no %s: cnictl has installed nothing there", dir.path, manifestFile)
	}
	// First, since nothing can be done about cnibox without it, and then
	// nothing should be done at all.
	if isProtected(dir.join(Binary)) {
		if err := setProtection(dir.join(Binary), false); err != nil {
			return nil, fmt.Errorf("nothing was removed: %w", err)
		}
	}
	r := &Removal{Dir: dir.path}
	var errs []error
	for _, name := range append(m.Names, Binary) {
		errs = append(errs, dir.takeAway(name, r))
	}
	if err := errors.Join(errs...); err != nil {
		return r, fmt.Errorf("uninstall from %s: %w; uninstall again when that is repaired", dir.path, err)
	}
	// It is not empty when something was left.
	_ = os.Remove(dir.join(replacedDir))
	if err := os.Remove(dir.join(manifestFile)); err != nil {
		return r, err
	}
	return r, dir.sync()
}

// takeAway undoes one name. What was replaced is renamed over it, so that the
// name is never missing.
func (d *directory) takeAway(name string, r *Removal) error {
	path, saved := d.join(name), d.join(replacedDir, name)
	_, err := os.Lstat(saved)
	hasSaved := err == nil
	found := d.identify(name)
	switch {
	case found.kind == foreign || found.kind == unusable:
		r.Left = append(r.Left, name)
		if hasSaved {
			r.Kept = append(r.Kept, name)
		}
		return nil
	case hasSaved:
		r.Restored = append(r.Restored, name)
		return os.Rename(saved, path)
	case found.kind == absent:
		return nil
	}
	r.Removed = append(r.Removed, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
