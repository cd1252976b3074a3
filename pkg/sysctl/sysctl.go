// Package sysctl reads and sets the sysctls (proc_sys_net(5)) of the calling
// thread's network namespace, or of another: see OpenIn.
package sysctl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Get returns the value of a sysctl, such as "net/ipv4/ip_forward", without the
// newline behind it.
func Get(key string) (string, error) {
	t := Open()
	defer t.Close()
	return t.Get(key)
}

// Set sets a sysctl. For several, open a Tree.
func Set(key, value string) error {
	t := Open()
	defer t.Close()
	return t.Set(key, value)
}

// Get returns the value of a sysctl without the newline behind it.
func (t Tree) Get(key string) (string, error) {
	k, err := ParseKey(key)
	if err != nil {
		return "", err
	}
	return t.GetKey(k)
}

// Set sets a sysctl.
func (t Tree) Set(key, value string) error {
	k, err := ParseKey(key)
	if err != nil {
		return err
	}
	return t.SetKey(k, value)
}

// GetKey returns the value of a sysctl without the newline behind it.
func (t Tree) GetKey(k Key) (string, error) {
	text, err := t.read(k)
	if err != nil {
		return "", &Error{Op: "read", Key: k, Err: err}
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// SetKey sets a sysctl. A value with more numbers than the sysctl has is
// unix.EINVAL like one of a wrong form, although the kernel has taken the first
// ones.
func (t Tree) SetKey(k Key, value string) error {
	if err := t.write(k, value); err != nil {
		return &Error{Op: "set", Key: k, Value: value, Err: err}
	}
	return nil
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

// piece is how much of a value the kernel takes at a time, in bytes: less than
// the smallest page.
const piece = 4000

func (t Tree) read(k Key) (string, error) {
	var small [512]byte // on the stack: most values have a few bytes
	buffer := small[:]
	for {
		n, err := t.readInto(buffer, k)
		if err != nil {
			return "", err
		}
		if n < len(buffer) {
			return string(buffer[:n]), nil
		}
		// What does not fit is cut off and not there for a second read.
		buffer = make([]byte, 16*len(buffer))
	}
}

// write hands the value to the kernel with a newline: without one an empty
// value would be no value, and a write of 0 bytes changes nothing.
func (t Tree) write(k Key, value string) error {
	text := value + "\n"
	if t.passage == nil {
		return t.writePieces(k, text)
	}
	if len(text) > piece {
		return t.passage.Run(func() error { return t.writePieces(k, text) })
	}
	n, err := t.passage.Write(t.dir, t.file(k), []byte(text))
	if err != nil {
		return err
	}
	return taken(text, n)
}

// writePieces writes a value of any length. Long lists of ports are taken in
// several pieces; of anything else the kernel takes only as much as it has use for,
// and ignores what comes in a second write.
func (t Tree) writePieces(k Key, text string) error {
	fd, err := unix.Openat(t.dir, t.file(k), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Write(fd, []byte(text))
		if err != nil {
			return err
		}
		if n < piece {
			return taken(text, n)
		}
		text = text[n:]
		if strings.TrimSpace(text) == "" {
			return nil
		}
	}
}

// taken is an error if the kernel has taken less of a value than there is.
func taken(text string, n int) error {
	if strings.TrimSpace(text[n:]) == "" {
		return nil
	}
	return fmt.Errorf("%w: the kernel took only %q", unix.EINVAL, text[:n])
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
