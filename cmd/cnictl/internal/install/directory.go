package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	replacedDir   = ".cnibox-replaced"
	stagingPrefix = ".cnibox-staging-"
)

// directory is the directory of plugins, opened and locked.
type directory struct {
	path string // without symbolic links
	file *os.File
}

// open opens the directory and keeps other installers of cnibox out of it.
func open(path string) (*directory, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("find the directory of plugins: %w", err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(real, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory of plugins: %w", err)
	}
	d := &directory{path: real, file: file}
	locked, err := d.lock()
	if err != nil {
		file.Close()
		return nil, err
	}
	if locked {
		d.removeStale()
	}
	return d, nil
}

// lock returns false where directories can't be locked (NFS): staging names
// are unique, so that nothing worse comes of it than a mix of two versions.
func (d *directory) lock() (bool, error) {
	err := unix.Flock(int(d.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, fmt.Errorf("another cnictl is at work in %s; try again when it is done", d.path)
	}
	return err == nil, nil
}

// removeStale removes what a killed installation has left.
func (d *directory) removeStale() {
	entries, _ := os.ReadDir(d.path)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), stagingPrefix) {
			(&stage{d.join(e.Name())}).remove()
		}
	}
}

func (d *directory) join(elements ...string) string {
	return filepath.Join(append([]string{d.path}, elements...)...)
}

// sync makes renames last.
func (d *directory) sync() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.path, err)
	}
	return nil
}

func (d *directory) close() { d.file.Close() }

// has tells whether the link is there as it should be.
func (d *directory) has(l link) bool {
	path, binary := d.join(l.name), d.join(Binary)
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if l.kind == Symbolic {
		target, err := os.Readlink(path)
		return err == nil && target == Binary
	}
	of, err := os.Lstat(binary)
	if err != nil {
		return false
	}
	if l.kind == Hard {
		return os.SameFile(info, of)
	}
	return !os.SameFile(info, of) && sameContent(path, binary)
}
