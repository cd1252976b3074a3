package flannel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/delegate"
	"github.com/cnibox/cnibox/pkg/state"
)

// savedConfig is a file with the configuration that the delegate was called with, from ADD to DEL.
//
// The reference plugin has one for each container, with the container's id for a name. Here the first attachment of a container has that
// name, so that the reference's DEL finds it, and others have a name with all of their key.
type savedConfig struct {
	path    string // "" if there is no file
	network string
	ifName  string       // "" if the reference wrote it
	config  *conf.Object // nil if there is no file, or one that names no plugin since it was torn
}

const (
	ifNameKey   = "cnibox/ifName" // which a file has besides the delegate's keys
	separator   = ":"             // which is in no part of a key
	writableDir = "the directory, \"dataDir\" in the configuration, must be one that root can write to, and not full"
)

// paths returns the two names that an attachment's file can have.
func paths(r *plugin.Request) (own, containers string) {
	containers = filepath.Join(dataDir(r.Config), r.ContainerID)
	return strings.Join([]string{containers, r.IfName, r.Network}, separator), containers
}

// find returns the attachment's file. A file that does not say whose it is may be the attachment's.
func find(r *plugin.Request) (k savedConfig, err error) {
	own, containers := paths(r)
	for _, path := range []string{own, containers} {
		k, err = read(path)
		isOther := k.config != nil && (k.network != r.Network || k.ifName != "" && k.ifName != r.IfName)
		if err != nil || k.path != "" && !isOther {
			return k, err
		}
	}
	return savedConfig{}, nil
}

func read(path string) (savedConfig, error) {
	text, err := state.Read(path)
	if state.IsMissing(err) {
		return savedConfig{}, nil
	}
	k := savedConfig{path: path}
	if o, wrong := conf.Parse(text); wrong == nil && typeOf(o.Lenient(), "") != "" {
		o.Lenient().String("name", &k.network)
		o.Lenient().String(ifNameKey, &k.ifName)
		k.config = o
	}
	return k, err
}

// ofDelegate is the function of that name with what was kept, or if that is lost with what the configuration says now.
func (k savedConfig) ofDelegate(r *plugin.Request) (*delegate.Delegate, *plugin.Request, error) {
	if k.config == nil {
		return wanted(r)
	}
	return ofDelegate(r, k.config)
}

// save writes the file, which is there completely or not at all. It need not outlive a crash of the machine: DEL works without. A file
// of the same attachment is of an ADD that was killed; one that does not say so is left to other attachments.
func save(r *plugin.Request, config *conf.Object) (path string, err error) {
	old, err := find(r)
	if err == nil && (old.config == nil || old.ifName != "") {
		err = state.Remove(old.path)
	}
	if err != nil {
		return "", err
	}
	config = config.Copy()
	config.Set(ifNameKey, r.IfName)
	own, path := paths(r)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if err = state.Create(path, config.JSON(), 0o600); errors.Is(err, os.ErrExist) {
		path = own
		err = state.Create(path, config.JSON(), 0o600)
	}
	return path, err
}

// files are the kept files in a directory.
type files string

// Held lists the files that say which network they are of. The reference plugin's don't say the interface, and are held as long as any of
// the container's is.
func (dir files) Held(_ context.Context, _ string) (list []plugin.Held, err error) {
	entries, err := os.ReadDir(string(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		id, _, _ := strings.Cut(e.Name(), separator)
		k, err := read(filepath.Join(string(dir), e.Name()))
		errs = append(errs, err)
		if k.network != "" {
			key := plugin.Key{Network: k.network, ContainerID: id, IfName: k.ifName}
			list = append(list, plugin.Held{Key: key, What: "configuration in " + k.path, Own: k})
		}
	}
	return list, errors.Join(errs...)
}

// Release removes files.
func (dir files) Release(_ context.Context, list []plugin.Held) error {
	var errs []error
	for _, h := range list {
		listed := h.Own.(savedConfig)
		k, err := read(listed.path)
		if err == nil && k.network == listed.network && k.ifName == listed.ifName {
			err = state.Remove(k.path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
