package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// privateDirs are the directories every Host has for itself, empty at first. /run is another.
var privateDirs = []string{"/var/lib/cni", "/etc/cni", "/opt/cni"}

// privateFiles gives the calling thread, which must be in a new mount namespace, the files of a fresh node: an empty
// /run and empty privateDirs, and a /sys that shows the thread's network namespace. All else is the machine's.
func privateFiles() error {
	if err := makeMountsPrivate(); err != nil {
		return err
	}
	// The first /run is a workbench and is hidden by the second.
	if err := mountTmpfs("/run"); err != nil {
		return err
	}
	for _, dir := range privateDirs {
		if err := providePrivateDir(dir); err != nil {
			return err
		}
	}
	if err := mountSysfs(); err != nil {
		return err
	}
	if err := mountTmpfs("/run"); err != nil {
		return err
	}
	return os.Mkdir("/run/netns", 0o755)
}

// providePrivateDir mounts an empty tmpfs on dir. When the machine has no such directory it is made in an overlay over
// its parent, so that nothing is left on the machine.
func providePrivateDir(dir string) error {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := mountOverlay(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return mountTmpfs(dir)
}

func mountTmpfs(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	return nil
}

// mountOverlay makes dir writable without a change to the machine. What is written goes to the workbench.
func mountOverlay(dir string) error {
	bench, err := os.MkdirTemp("/run", "overlay-")
	if err != nil {
		return err
	}
	upper, work := filepath.Join(bench, "upper"), filepath.Join(bench, "work")
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	options := "lowerdir=" + dir + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount an overlay on %s (for directories the machine does not have): %w", dir, err)
	}
	return nil
}

// mountSysfs mounts the sysfs of the thread's network namespace on /sys; a sysfs shows the links of the namespace it was
// mounted in. The control groups, which live below /sys, move to the new one.
func mountSysfs() error {
	const cgroups, aside = "/sys/fs/cgroup", "/run/cgroup"
	_, err := os.Lstat(cgroups)
	hasCgroups := err == nil
	if hasCgroups {
		if err := os.Mkdir(aside, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(cgroups, aside, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", cgroups, err)
		}
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs on /sys: %w", err)
	}
	if hasCgroups {
		if err := unix.Mount(aside, cgroups, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move the control groups to the new /sys: %w", err)
		}
	}
	return nil
}
