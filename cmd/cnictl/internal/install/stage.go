package install

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stage is a directory beside the plugins, on their filesystem, in which
// files are made before they are renamed, and kept after they were replaced.
type stage struct {
	path string
}

// oldDir is where in a stage the transaction keeps what it has replaced.
const oldDir = "old"

func (d *directory) newStage() (*stage, error) {
	path, err := os.MkdirTemp(d.path, stagingPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory to prepare the installation in: %w", err)
	}
	s := &stage{path}
	for _, dir := range []string{oldDir, replacedDir} {
		if err := os.Mkdir(s.join(dir), 0o700); err != nil {
			s.remove()
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) join(elements ...string) string {
	return filepath.Join(append([]string{s.path}, elements...)...)
}

// remove removes the stage, even one in which a killed installation has left
// an immutable file.
func (s *stage) remove() {
	_ = filepath.WalkDir(s.path, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			_ = setProtection(path, false)
		}
		return nil
	})
	_ = os.RemoveAll(s.path)
}

// binary stages cnibox. The copy is looked at again: the file may have been
// about to be written.
func (s *stage) binary(from string) error {
	if err := copyFile(from, s.join(Binary), 0o755); err != nil {
		return err
	}
	return requireCnibox(s.join(Binary))
}

func (s *stage) manifest(m manifest) error {
	return writeFile(s.join(manifestFile), 0o644, func(f *os.File) error {
		_, err := f.Write(m.text())
		return err
	})
}

func (s *stage) link(l link) error {
	switch l.kind {
	case Symbolic:
		return os.Symlink(Binary, s.join(l.name))
	case Hard:
		return os.Link(s.join(Binary), s.join(l.name))
	default:
		return copyFile(s.join(Binary), s.join(l.name), 0o755)
	}
}

// keepReplaced stages another name for a file that is to be replaced.
func (s *stage) keepReplaced(name string) error {
	return duplicate(filepath.Join(filepath.Dir(s.path), name), s.join(replacedDir, name))
}

// sync makes the stage's names last.
func (s *stage) sync() error {
	for _, path := range []string{s.path, s.join(replacedDir)} {
		if err := syncDir(path); err != nil {
			return err
		}
	}
	return nil
}

// probeProtection tells why files here can't be made immutable, nil if they
// can.
func (s *stage) probeProtection() error {
	path := s.join("probe")
	err := writeFile(path, 0o600, func(*os.File) error { return nil })
	if err != nil {
		return err
	}
	if err := setProtection(path, true); err != nil {
		return err
	}
	return setProtection(path, false)
}
