// Package trust decides which files and directories may be believed. Root must not read what a stranger put there, run it, or write where a
// stranger leads it.
//
// A file is trusted if it belongs to root or to the caller, nobody else can write it, and the same holds for every directory above it, up to /, and
// for every symbolic link on the way. The way is walked by descriptors, one step at a time, so nothing can be exchanged in between.
package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is the files below a directory, which is / for them: paths and symbolic links lead from there.
type Tree string

// Host is all files.
const Host Tree = "/"

// ErrUntrusted is what every error of a file or directory is that others than root can change.
var ErrUntrusted = errors.New("not root's alone")

// mostBytes is what a file may have that is read.
const mostBytes = 1 << 20

// Read returns the content of a trusted regular file of 1 MiB at most.
func (t Tree) Read(path string) ([]byte, error) {
	f, err := t.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if len(content) > mostBytes {
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("larger than 1 MiB")}
	}
	return content, err
}

// Open opens a trusted regular file for reading.
func (t Tree) Open(path string) (*os.File, error) {
	way, err := t.walk(path, everyStep)
	if err != nil {
		return nil, err
	}
	defer way.close()
	return reopen(way.end(), unix.O_RDONLY|unix.O_NONBLOCK, fs.FileMode.IsRegular, "not a regular file")
}

// Names returns the names in a trusted directory, sorted.
func (t Tree) Names(path string) ([]string, error) {
	way, err := t.walk(path, everyStep)
	if err != nil {
		return nil, err
	}
	defer way.close()
	dir, err := reopen(way.end(), unix.O_RDONLY|unix.O_DIRECTORY, fs.FileMode.IsDir, "not a directory")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// Check returns why a file or directory is not trusted, or that it is not there. As nobody but root can change what is trusted, it may be used by
// its path afterwards.
func (t Tree) Check(path string) error {
	way, err := t.walk(path, everyStep)
	way.close()
	return err
}

// reopen opens what a descriptor of O_PATH stands for, if it is of a kind: devices and pipes are not touched.
func reopen(f *os.File, flags int, is func(fs.FileMode) bool, isNot string) (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !is(info.Mode()) {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: errors.New(isNot)}
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// rule says which steps of a way have to be trusted.
type rule bool

const (
	everyStep rule = true  // to believe what is there
	links     rule = false // to write there: whoever owns a directory may see files come, but must not lead them elsewhere
)

// way is the directories from / to a file, and the file, opened without being read (O_PATH). No symbolic link is left in it.
type way []*os.File

func (w way) end() *os.File { return w[len(w)-1] }

// back closes all but the first n steps.
func (w way) back(n int) way {
	for _, f := range w[n:] {
		_ = f.Close()
	}
	return w[:n]
}

func (w way) close() { w.back(0) }

// mostLinks is how many symbolic links a path may have, as for the kernel.
const mostLinks = 40

// walk goes a path, as far as the rule allows it.
func (t Tree) walk(path string, r rule) (w way, err error) {
	if !strings.HasPrefix(path, "/") {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not an absolute path")}
	}
	defer func() {
		if err != nil {
			w.close()
			w = nil
		}
	}()
	root, err := step(unix.AT_FDCWD, string(t), "/")
	if err != nil {
		return nil, err
	}
	w = append(w, root)
	if t == Host {
		err = r.allows(root)
	}
	followed := 0
	for rest := strings.Split(path, "/"); err == nil && len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			w = w.back(max(1, len(w)-1))
			continue
		}
		next, err := step(int(w.end().Fd()), name, strings.TrimSuffix(w.end().Name(), "/")+"/"+name)
		if err != nil {
			return w, err
		}
		w = append(w, next)
		if err := r.allows(next); err != nil {
			return w, err
		}
		target, isLink, err := readLink(next)
		if err != nil {
			return w, err
		}
		if !isLink {
			continue
		}
		if followed++; followed > mostLinks {
			return w, &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
		}
		w = w.back(len(w) - 1)
		if strings.HasPrefix(target, "/") {
			w = w.back(1)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return w, err
}

// step opens a name in a directory, and follows nothing.
func step(dir int, name, path string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func readLink(f *os.File) (target string, is bool, err error) {
	info, err := f.Stat()
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return "", false, err
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", text)
	if err != nil {
		return "", true, &os.PathError{Op: "readlink", Path: f.Name(), Err: err}
	}
	return string(text[:n]), true, nil
}

// allows returns an error for what must not be believed, or followed.
func (r rule) allows(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	isLink := st.Mode&unix.S_IFMT == unix.S_IFLNK
	why := ""
	switch {
	case r == links && !isLink:
		return nil
	case !isOwn(st.Uid):
		why = fmt.Sprintf("it belongs to user %d, and may have to be given to root", st.Uid)
	case isLink || st.Mode&0o022 == 0: // a link has no rights of its own
		return nil
	case st.Mode&unix.S_ISVTX != 0:
		why = "everybody may put files there: choose a place that only root can write"
	default:
		why = fmt.Sprintf("its group or others can write it (%04o): chmod go-w %s", st.Mode&0o7777, f.Name())
	}
	return &os.PathError{Op: "trust", Path: f.Name(), Err: fmt.Errorf("%w: %s", ErrUntrusted, why)}
}

// isOwn reports whether a user is root or the caller. In a user namespace the host's root has no number of its own, so the owner of / counts.
func isOwn(uid uint32) bool {
	return uid == 0 || int(uid) == os.Geteuid() || !inFirstUserNamespace() && uid == ownerOfRoot()
}

func inFirstUserNamespace() bool {
	const first = "user:[4026531837]" // PROC_USER_INIT_INO of the kernel
	ns, err := os.Readlink("/proc/self/ns/user")
	return err != nil || ns == first // an error: this kernel has no others
}

func ownerOfRoot() uint32 {
	var st unix.Stat_t
	_ = unix.Stat("/", &st)
	return st.Uid
}
