package dhcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Dir is the directory of leases, beside the daemon's socket. It has a file for each lease, and another one when that must be
// released. Like the namespaces that they are for, they don't outlive the machine's boot.
type Dir string

// DirOf returns the directory of the daemon that listens on a socket.
func DirOf(socket string) Dir { return Dir(strings.TrimSuffix(socket, ".sock") + ".leases") }

const leaseSuffix, releaseSuffix = ".json", ".release"

func (d Dir) path(k plugin.Key, suffix string) string {
	return filepath.Join(string(d), fmt.Sprintf("%x", k.ID("dhcp"))+suffix)
}

// Write writes the file of a lease, whose document has the request that it was made by.
func (d Dir) Write(k plugin.Key, o *conf.Object) error {
	return state.Write(d.path(k, leaseSuffix), append(o.JSON(), '\n'), 0o600)
}

// Remove removes the files of a lease.
func (d Dir) Remove(k plugin.Key) error {
	var errs []error
	for _, suffix := range []string{leaseSuffix, releaseSuffix} { // in this order: what is queued has a lease
		errs = append(errs, state.Remove(d.path(k, suffix)))
	}
	return errors.Join(errs...)
}

// Queued reports whether a lease must be released.
func (d Dir) Queued(k plugin.Key) bool {
	_, err := os.Stat(d.path(k, releaseSuffix))
	return err == nil
}

// queue notes that a lease must be released, if there is one.
func (d Dir) queue(k plugin.Key) (queued bool, err error) {
	if _, err := os.Stat(d.path(k, leaseSuffix)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	err = state.Create(d.path(k, releaseSuffix), nil, 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, plugin.CodeErrorf(types.ErrIOFailure, "start the daemon, or make "+string(d)+" writable",
			"the DHCP daemon is down, and the release can't be left to it: %w", err)
	}
	return true, nil
}

// File is the file of a lease: the request in it, and the whole document, or why it can't be read.
type File struct {
	Path     string
	Request  *Request
	Document *conf.Object
	Err      error
}

// Read reads all files of leases.
func (d Dir) Read() (files []File, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), leaseSuffix) && !strings.HasPrefix(e.Name(), ".") {
			f := File{Path: filepath.Join(string(d), e.Name())}
			f.Err = f.read(d)
			files = append(files, f)
		}
	}
	return files, err
}

func (f *File) read(d Dir) error {
	text, err := state.Read(f.Path)
	if err != nil {
		return err
	}
	if f.Document, err = conf.Parse(text); err != nil {
		return err
	}
	if f.Request, err = ParseRequest(f.Document); err != nil {
		return err
	}
	if name := d.path(f.Request.Key, leaseSuffix); name != f.Path { // a copy, with times that have passed
		return fmt.Errorf("it is that of %s, whose own is %s", f.Request.Key, name)
	}
	return nil
}

// lease says what is leased, for people.
func (f *File) lease() string {
	text := "DHCP lease"
	for _, family := range []string{"ipv4", "ipv6"} {
		address := ""
		f.Document.Lenient().Object(family).String("address", &address)
		text = strings.TrimSuffix(text+" "+address, " ")
	}
	return text
}

// isGarbage reports whether nobody can ever use a file: it has been read, and is none of a lease.
func (f *File) isGarbage() bool {
	var fails unix.Errno
	return f.Err != nil && !errors.As(f.Err, &fails)
}
