package runtimes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// cgroupEnv names the control group, below the root of every hierarchy, in which the runtimes make those of their
// containers. They would leave their own, such as /k8s.io and /libpod_parent, on the machine.
const cgroupEnv = "RUNTIMES_CGROUP"

func cgroup() string { return os.Getenv(cgroupEnv) }

// removeCgroups removes a control group and those below it from every hierarchy, of version 1 and 2.
func removeCgroups(name string) error {
	const root = "/sys/fs/cgroup"
	hierarchies, err := filepath.Glob(root + "/*" + name)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range append(hierarchies, root+name) {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

func removeCgroup(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.Reverse(groups) // the innermost first
	for _, group := range groups {
		if err := removeEmptied(group); err != nil {
			return fmt.Errorf("remove control group %s: %w", group, err)
		}
	}
	return nil
}

// removeEmptied removes a control group whose last process has ended: the kernel may take a moment to notice.
func removeEmptied(group string) (err error) {
	busy := netlab.Await(func() error {
		if err = unix.Rmdir(group); err == unix.EBUSY {
			return err
		}
		return nil
	})
	return cmp.Or(busy, err)
}
