package hostdevice

import (
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
)

// sysfs shows the devices of one network namespace. It is a mount of our own, at no path: /sys shows those of whoever mounted it.
//
// The kernel gives each directory there a number (its inode) and gives none twice. A device's stays the same in all namespaces, whatever
// is changed of it. So nobody can make another device that passes for it.
type sysfs struct{ *os.File }

// openSysfs opens that of the calling thread's namespace. Linux 5.2 is the first that can, and not in each user namespace.
func openSysfs() (*sysfs, error) {
	context, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	root, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return &sysfs{os.NewFile(uintptr(root), "sysfs")}, nil
}

// number returns the number of the device that has a name, 0 if there is none.
func (s *sysfs) number(name string) int {
	var directory unix.Stat_t
	if unix.Fstatat(int(s.Fd()), "class/net/"+name, &directory, 0) != nil {
		return 0
	}
	return int(directory.Ino)
}

// names returns the names of all devices.
func (s *sysfs) names() ([]string, error) {
	fd, err := unix.Openat(int(s.Fd()), "class/net", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	directory := os.NewFile(uintptr(fd), "class/net")
	defer directory.Close()
	return directory.Readdirnames(-1)
}

// numberOf returns the number of a device of the calling thread's namespace, 0 if it is not known.
func numberOf(name string) int {
	s, err := openSysfs()
	if err != nil {
		return 0
	}
	defer s.Close()
	return s.number(name)
}

// findNumber returns the device of the calling thread's namespace that has a number, nil if it is not there. It is looked for under the
// likely names, and then under all, so there are two tries at least. More are for a container that renames it meanwhile.
func findNumber(links *netlink.Handle, number, tries int, likely ...string) (netlink.Link, error) {
	s, err := openSysfs()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for range tries {
		at := slices.IndexFunc(likely, func(name string) bool { return s.number(name) == number })
		if at >= 0 {
			l, err := links.LinkByName(likely[at])
			if !link.IsNotFound(err) {
				return l, err
			}
		}
		if likely, err = s.names(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
