package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// transaction changes names one by one and remembers how to put them back.
type transaction struct {
	stage *stage
	undo  []func() error
}

// rollback puts everything back, the last change first.
func (tx *transaction) rollback() error {
	var errs []error
	for i := len(tx.undo) - 1; i >= 0; i-- {
		errs = append(errs, tx.undo[i]())
	}
	return errors.Join(errs...)
}

// put renames a staged file to its final name.
func (tx *transaction) put(staged, target string) error {
	old := tx.stage.join(oldDir, strconv.Itoa(len(tx.undo)))
	err := duplicate(target, old)
	existed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the old %s: %w", target, err)
	}
	if err := os.Rename(staged, target); err != nil {
		// Still a name of the file in use, which the stage must not touch.
		_ = os.Remove(old)
		return fmt.Errorf("install %s: %w", target, err)
	}
	tx.undo = append(tx.undo, func() error {
		if existed {
			return os.Rename(old, target)
		}
		return os.Remove(target)
	})
	return nil
}

// setProtection sets or clears the immutable flag of a file, which may be
// missing when it is to be cleared.
func (tx *transaction) setProtection(path string, on bool) error {
	if isProtected(path) == on {
		return nil
	}
	if err := setProtection(path, on); err != nil {
		return err
	}
	tx.undo = append(tx.undo, func() error { return setProtection(path, !on) })
	return nil
}

// mkdir makes a directory if it is not there.
func (tx *transaction) mkdir(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make a directory for what is replaced: %w", err)
	}
	tx.undo = append(tx.undo, func() error { return os.Remove(path) })
	return syncDir(filepath.Dir(path))
}
