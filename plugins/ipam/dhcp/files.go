package dhcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Dir is the directory of leases, beside the daemon's socket. It has a file for each lease, and another one when that is to be
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
		if err := os.Remove(d.path(k, suffix)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Queued reports whether a lease is to be released.
func (d Dir) Queued(k plugin.Key) bool {
	_, err := os.Stat(d.path(k, releaseSuffix))
	return err == nil
}

// queue notes that a lease is to be released, if there is one.
func (d Dir) queue(k plugin.Key) (queued bool, err error) {
	if _, err := os.Stat(d.path(k, leaseSuffix)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	err = state.Create(d.path(k, releaseSuffix), nil, 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, types.NewError(types.ErrIOFailure, "the DHCP daemon is down, and the release can't be left to it: "+err.Error(),
			"start the daemon, or make "+string(d)+" writable")
	}
	return true, nil
}

// Read calls use for each lease, and for the error of a file that can't be read.
func (d Dir) Read(use func(q *Request, o *conf.Object, err error)) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), leaseSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		q, o, err := read(filepath.Join(string(d), e.Name()))
		use(q, o, err)
	}
	return err
}

func read(path string) (*Request, *conf.Object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	o, err := conf.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	q, err := ParseRequest(o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return q, o, nil
}

// keys returns the keys of all leases.
func (d Dir) keys() (keys []plugin.Key, err error) {
	err = d.Read(func(q *Request, _ *conf.Object, err error) {
		if err == nil {
			keys = append(keys, q.Key)
		}
	})
	return keys, err
}
