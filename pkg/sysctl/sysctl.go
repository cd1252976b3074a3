// Package sysctl reads and sets the sysctls (proc_sys_net(5)) of the calling thread's network namespace. Keys are checked, and
// errors say what can be done. (containernetworking/plugins' package of the same name reads back what it has written, which not all
// sysctls allow, doesn't see that the kernel took a part of a value, and panics where a sysctl shows nothing.)
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// root is where procfs shows the sysctls: those below net/ are the ones of the namespace of the thread that looks.
const root = "/proc/sys"

// procfs is a procfs of our own. In the one at /proc the kernel goes through the directories of all network namespaces of the node to
// find those of one. Where none can be mounted, or sysctls are not to be set, it is that one all the same.
var procfs = sync.OnceValue(func() int {
	own, err := mountProcfs()
	if err != nil || Writable() != nil {
		own, _ = unix.Open("/proc", unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return own
})

// mountProcfs mounts a procfs that has no path (fsmount(2)), and is there as long as this process.
func mountProcfs() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// Key names a sysctl below net/, the only ones that a network namespace has values of its own for.
type Key struct {
	text string // as it was written, for messages
	path string // below /proc/sys
}

// ParseKey reads a key as sysctl(8) does. Its form is that of the first separator: in net/ipv4/conf/eth0.5/arp_filter dots belong to the
// names, in net.ipv4.conf.eth0/5.arp_filter they separate them and a slash stands for a dot within a name. A key that leads out of net/ is
// an error.
func ParseKey(text string) (Key, error) {
	invalid := func(why string) (Key, error) { return Key{}, fmt.Errorf("invalid net sysctl key %q: %s", text, why) }
	path := text
	if i := strings.IndexAny(text, "./"); i >= 0 && text[i] == '.' {
		path = strings.NewReplacer(".", "/", "/", ".").Replace(text)
	}
	parts := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	for _, upwards := range []string{".", ".."} {
		if slices.Contains(parts, upwards) {
			return invalid("a part of it is \"" + upwards + "\"")
		}
	}
	switch {
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return invalid("it holds white space or a control character")
	case len(parts) < 2 || parts[0] != "net":
		return invalid("it must lie below net")
	}
	return Key{text, strings.Join(parts, "/")}, nil
}

// ForInterface returns the key with a link's name, which may hold dots but no slash, in place of the first IFNAME: configurations that
// many attachments share write that for the interface.
func (k Key) ForInterface(name string) Key {
	return Key{k.text, strings.Replace(k.path, "IFNAME", name, 1)}
}

// String returns the key as it was written.
func (k Key) String() string { return k.text }

// Path returns the key in the form with slashes. Keys of the same sysctl have the same path.
func (k Key) Path() string { return k.path }

// describe returns the key as it was written and, if that is not plain from it, what it was read as.
func (k Key) describe() string {
	if k.path == k.text || k.path == strings.ReplaceAll(k.text, ".", "/") {
		return k.text
	}
	return k.text + " (" + k.path + ")"
}

// Get returns the value of a sysctl, such as "net/ipv4/ip_forward", without the newline behind it.
func Get(key string) (string, error) {
	k, err := ParseKey(key)
	if err != nil {
		return "", err
	}
	return k.Get()
}

// Set sets a sysctl, unless it has the value already.
func Set(key, value string) error {
	k, err := ParseKey(key)
	if err != nil {
		return err
	}
	if has, err := k.Get(); err == nil && has == value {
		return nil
	}
	return k.Set(value)
}

// Get returns the value of the sysctl without the newline behind it.
func (k Key) Get() (string, error) {
	const usual, most = 4 << 10, 128 << 10 // bytes; a list of many ports is long
	value, err := k.read(usual)
	if len(value) == usual { // the kernel has cut it off, and has no rest for a second read
		value, err = k.read(most)
	}
	if err != nil {
		return "", &Error{"read sysctl " + k.describe(), err}
	}
	return strings.TrimSuffix(string(value), "\n"), nil
}

// read reads the value, up to a number of bytes, for which the kernel takes memory too.
func (k Key) read(most int) ([]byte, error) {
	fd, err := k.open(unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	value := make([]byte, most)
	n, err := unix.Read(fd, value)
	return value[:max(n, 0)], err
}

func (k Key) open(mode int) (fd int, err error) {
	return unix.Openat(procfs(), "sys/"+k.path, mode|unix.O_CLOEXEC, 0)
}

// Set sets the sysctl. A value with more numbers than it has is unix.EINVAL like one of a wrong form, although the kernel has taken
// the first ones.
func (k Key) Set(value string) error {
	err := k.write(value)
	if err == nil {
		return nil
	}
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	return &Error{fmt.Sprintf("set sysctl %s to %q", k.describe(), value), err}
}

// write hands the value to the kernel with a newline: without one an empty value would be no value, and a write of 0 bytes changes
// nothing.
func (k Key) write(value string) error {
	const piece = 4000 // how much the kernel takes at a time: less than the smallest page
	fd, err := k.open(unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	text := value + "\n"
	for more := true; more; more = strings.TrimSpace(text) != "" {
		n, err := unix.Write(fd, []byte(text))
		if err != nil {
			return err
		}
		if n < piece && strings.TrimSpace(text[n:]) != "" {
			return fmt.Errorf("%w: the kernel took only %q", unix.EINVAL, text[:n])
		}
		text = text[n:] // of a long list of ports
	}
	return nil
}

// Writable returns an error when sysctls can't be set because /proc/sys is mounted read-only, as in a container without privileges.
func Writable() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(root+"/net", &fs); err != nil {
		return fmt.Errorf("look at %s: %w", root, err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s is mounted read-only", root)
	}
	return nil
}

// IsForbidden reports whether an error says that sysctls can't be set from here, whichever value.
func IsForbidden(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)
}

// Error is the kernel's refusal to show or set a sysctl.
type Error struct {
	what string
	err  error // a unix.Errno is in it
}

func (e *Error) Error() string { return e.what + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Remedy says what can be done about it.
func (e *Error) Remedy() string {
	switch {
	case errors.Is(e.err, unix.ENOENT), errors.Is(e.err, unix.ENOTDIR):
		return "this network namespace has no such sysctl: check the spelling (in a key with slashes, dots belong to the names), " +
			"whether the interface exists, whether the kernel module that brings it is loaded, " +
			"and whether it can be set for each namespace at all; `sysctl -a` inside shows those there are"
	case errors.Is(e.err, unix.EINVAL), errors.Is(e.err, unix.ERANGE), errors.Is(e.err, unix.EDOM):
		return "the kernel does not take that value: see what `sysctl` shows for the key, and the kernel's documentation of it for its range"
	case errors.Is(e.err, unix.EROFS):
		return root + " is mounted read-only where the plugin runs: give the runtime a writable one"
	case errors.Is(e.err, unix.EACCES), errors.Is(e.err, unix.EPERM):
		return "the sysctl does not allow it, or the plugin does not run as root with CAP_NET_ADMIN in the namespace"
	}
	return ""
}
