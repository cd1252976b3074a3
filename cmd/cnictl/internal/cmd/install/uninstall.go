package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
)

// Removal is what Uninstall did.
type Removal struct {
	Dir   string
	Files []ui.File
	Kept  []string // names of files that are left: what Install had replaced, still in .cnibox-replaced
}

// names returns the names of the files that became so.
func (r *Removal) names(outcome ui.Outcome) (list []string) {
	for _, f := range r.Files {
		if f.Outcome == outcome {
			list = append(list, filepath.Base(f.Path))
		}
	}
	return list
}

// UninstallNetwork removes a network's file that Install has put into a directory, or all of a directory's, unless it has been changed there. It
// comes before Uninstall: without it, a runtime attaches no more containers. It returns those that are removed.
func UninstallNetwork(from, dir string) (removed []ui.File, err error) {
	networks, err := readNetworks(from, dir)
	for _, n := range networks {
		isRemoved, failed := n.uninstall()
		if isRemoved {
			removed = append(removed, ui.File{Path: n.path, Outcome: ui.Removed})
		}
		err = errors.Join(err, failed)
	}
	return removed, err
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
	f := ui.File{Path: path, Outcome: ui.Removed}
	if foreign, err := d.foreign(name); foreign != "" || err != nil {
		f.Outcome, f.Why = ui.Left, foreign+", which is not cnibox's any more"
		if err != nil {
			f.Why = err.Error()
		}
		if hasSaved {
			r.Kept = append(r.Kept, name)
			f.Why += "; what install had replaced is still " + saved
		}
		r.Files = append(r.Files, f)
		return nil
	}
	if old := pluginfile.Identify(saved); old != nil && old.Origin == pluginfile.Ours { // an older version took it for somebody's
		hasSaved = false
		_ = os.Remove(saved)
	}
	if hasSaved {
		f.Outcome = ui.Restored
		err = os.Rename(saved, path)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		r.Files = append(r.Files, f)
	}
	return err
}
