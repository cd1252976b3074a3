package install

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// immutable is FS_IMMUTABLE_FL of linux/fs.h, what chattr(1) calls +i. Nobody
// can write, rename, link or remove a file that has it. With cnibox immutable,
// a `cp -f` to a symbolic link that leads to it can't open the file, and does
// what -f is for: it removes the link and makes a file in its place.
const immutable = 0x10

func isProtected(path string) bool {
	flags := 0
	err := withFlags(path, func(fd, found int) error {
		flags = found
		return nil
	})
	return err == nil && flags&immutable != 0
}

// setProtection sets or clears the immutable flag. That needs a filesystem
// that has it and CAP_LINUX_IMMUTABLE.
func setProtection(path string, on bool) error {
	return withFlags(path, func(fd, flags int) error {
		wanted, verb := flags&^immutable, "clear"
		if on {
			wanted, verb = flags|immutable, "set"
		}
		if wanted == flags {
			return nil
		}
		if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, wanted); err != nil {
			return fmt.Errorf("%s the immutable flag of %s (needs CAP_LINUX_IMMUTABLE): %w", verb, path, err)
		}
		return nil
	})
}

// withFlags calls f with the open file and its flags (ioctl_iflags(2)).
func withFlags(path string, f func(fd, flags int) error) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	fd := int(file.Fd())
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return fmt.Errorf("read the flags of %s: %w", path, err)
	}
	return f(fd, int(flags))
}
