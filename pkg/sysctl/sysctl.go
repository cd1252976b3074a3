// Package sysctl reads and sets the sysctls (proc_sys_net(5)) of the calling thread's network namespace. Keys are checked, and
// errors say what can be done. (containernetworking/plugins' package of the same name reads back what it has written, which not all
// sysctls allow, doesn't see that the kernel took a part of a value, and panics where a sysctl shows nothing.)
package sysctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// root is where procfs shows the sysctls: those below net/ are the ones of the namespace of the thread that looks.
const root = "/proc/sys"

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
	const most = 128 << 10 // bytes: what a read cuts off is not there for a second one
	file, err := os.Open(root + "/" + k.Path())
	if err != nil {
		return "", &Error{Op: "read", Key: k, Err: err}
	}
	defer file.Close()
	value := make([]byte, most)
	n, err := file.Read(value)
	if err != nil && err != io.EOF {
		return "", &Error{Op: "read", Key: k, Err: err}
	}
	return strings.TrimSuffix(string(value[:n]), "\n"), nil
}

// Set sets the sysctl. A value with more numbers than it has is unix.EINVAL like one of a wrong form, although the kernel has taken
// the first ones.
func (k Key) Set(value string) error {
	if err := k.write(value); err != nil {
		return &Error{Op: "set", Key: k, Value: value, Err: err}
	}
	return nil
}

// write hands the value to the kernel with a newline: without one an empty value would be no value, and a write of 0 bytes changes
// nothing.
func (k Key) write(value string) error {
	const piece = 4000 // how much the kernel takes at a time: less than the smallest page
	fd, err := unix.Open(root+"/"+k.Path(), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for text := value + "\n"; ; {
		n, err := unix.Write(fd, []byte(text))
		if err != nil {
			return err
		}
		rest := text[n:]
		switch {
		case strings.TrimSpace(rest) == "":
			return nil
		case n < piece:
			return fmt.Errorf("%w: the kernel took only %q", unix.EINVAL, text[:n])
		}
		text = rest // of a long list of ports
	}
}

// Writable returns an error when sysctls can't be set because /proc/sys is
// mounted read-only, as in a container without privileges.
func Writable() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", root, err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s is mounted read-only", root)
	}
	return nil
}

// Error is the kernel's refusal to show or set a sysctl.
type Error struct {
	Op    string // "read" or "set"
	Key   Key
	Value string // what was to be set
	Err   error  // a unix.Errno is in it
}

func (e *Error) Error() string {
	if e.Op == "set" {
		return fmt.Sprintf("set sysctl %s to %s: %v", e.Key.describe(), quote(e.Value), e.Err)
	}
	return fmt.Sprintf("read sysctl %s: %v", e.Key.describe(), e.Err)
}

// quote returns a value as it can stand in a message.
func quote(value string) string {
	const most = 80
	if len(value) > most {
		return strconv.Quote(value[:most]) + "…"
	}
	return strconv.Quote(value)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Remedy says what can be done about it.
func (e *Error) Remedy() string {
	switch {
	case errors.Is(e.Err, unix.ENOENT), errors.Is(e.Err, unix.ENOTDIR):
		return "this network namespace has no such sysctl: check the spelling (in a key with slashes, dots belong to the names), " +
			"whether the interface exists, whether the kernel module that brings it is loaded, " +
			"and whether it can be set for each namespace at all; `sysctl -a` inside shows those there are"
	case errors.Is(e.Err, unix.EINVAL), errors.Is(e.Err, unix.ERANGE), errors.Is(e.Err, unix.EDOM):
		return "the kernel does not take that value: see what `sysctl` shows for the key, and the kernel's documentation of it for its range"
	case errors.Is(e.Err, unix.EROFS):
		return root + " is mounted read-only where the plugin runs: give the runtime a writable one"
	case errors.Is(e.Err, unix.EACCES), errors.Is(e.Err, unix.EPERM):
		return "the sysctl does not allow it, or the plugin does not run as root with CAP_NET_ADMIN in the namespace"
	}
	return ""
}
