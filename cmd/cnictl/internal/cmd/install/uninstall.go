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

// UninstallNetwork removes a network's file that Install has put into a directory, or all of a directory's, unless it has been changed there. It
// comes before Uninstall: without it, a runtime attaches no more containers.
func UninstallNetwork(from, dir string) error {
	networks, err := readNetworks(from, dir)
	for _, n := range networks {
		err = errors.Join(err, n.uninstall())
	}
	return err
}

// Uninstall removes what Install has made and brings back what it had replaced. It leaves what others have put there since,
// and can be repeated after a failure.
func Uninstall(path string) (*Removal, error) {
	d, err := open(path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	names, err := d.readManifest()
	if err != nil {
		return nil, err
	}
	if names == nil {
		return nil, fmt.Errorf("%s has no %s: cnictl has installed nothing there", d.path, manifestFile)
	}
	r := &Removal{Dir: d.path}
	var errs []error
	for _, name := range append(names, binaries(names)...) {
		errs = append(errs, d.takeAway(name, r))
	}
	if err := errors.Join(errs...); err != nil {
		return r, fmt.Errorf("uninstall from %s: %w; uninstall again when that is repaired", d.path, err)
	}
	_ = os.Remove(d.join(replacedDir)) // it is not empty when something was left
	if err := os.Remove(d.join(manifestFile)); err != nil {
		return r, err
	}
	return r, d.file.Sync()
}

// takeAway undoes one name. The file that was replaced is renamed over it, so that the name is never missing.
func (d *directory) takeAway(name string, r *Removal) error {
	path, saved := d.join(name), d.join(replacedDir, name)
	_, err := os.Lstat(saved)
	hasSaved := err == nil
	if foreign, err := d.foreign(name); foreign != "" || err != nil {
		r.Left = append(r.Left, name)
		if hasSaved {
			r.Kept = append(r.Kept, name)
		}
		return nil
	}
	if hasSaved {
		r.Restored = append(r.Restored, name)
		return os.Rename(saved, path)
	}
	err = os.Remove(path)
	if err == nil {
		r.Removed = append(r.Removed, name)
	} else if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
