// Package cache reads libcni's cache, which has a file for each attachment until its DEL, to say which containers have attachments.
// A file that it can't read counts as in use: in doubt May… is true.
package cache

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Files is what the cache has of attachments, without one that is of no interest.
type Files struct {
	dir   string
	files map[string][]string // names of files, by each part of them that can be a container's id
}

// fileOf returns the name of an attachment's file. All its parts may have a "-": several keys lead to one file.
func fileOf(k plugin.Key) string { return k.Network + "-" + k.ContainerID + "-" + k.IfName }

// read reads a file.
func read(dir, file string) (*fastjson.Value, error) {
	path := filepath.Join(dir, file)
	text, err := state.Read(path)
	if err != nil {
		return nil, err
	}
	v, err := fastjson.ParseBytes(text)
	if err != nil {
		return nil, plugin.Errorf("", "%s is not JSON: %w", path, err)
	}
	return v, nil
}

// Result is what libcni has of one attachment.
type Result struct {
	Netns   string // the path of its network namespace, "" if it names none
	MAC     string // of its interface
	Written time.Time
}

// Read returns the result of an attachment. That there is none is fs.ErrNotExist.
func Read(dir string, key plugin.Key) (r Result, err error) {
	name := fileOf(key)
	file, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return r, err
	}
	v, err := read(dir, name)
	if err != nil {
		return r, err
	}
	about := plugin.Key{Network: string(v.GetStringBytes("networkName")), ContainerID: string(v.GetStringBytes("containerId")), IfName: string(v.GetStringBytes("ifName"))}
	if about != key {
		return r, plugin.Errorf("", "%s is about another attachment", name)
	}
	r.Written, r.Netns = file.ModTime(), string(v.GetStringBytes("netns"))
	for _, i := range v.GetArray("result", "interfaces") {
		sandbox := string(i.GetStringBytes("sandbox"))
		if sandbox != "" && string(i.GetStringBytes("name")) == key.IfName {
			r.Netns, r.MAC = cmp.Or(r.Netns, sandbox), string(i.GetStringBytes("mac")) // libcni before 1.2 does not write the path down
		}
	}
	return r, nil
}

// Has reports whether libcni has a result of an attachment: one whose ADD has failed has none.
func Has(dir string, key plugin.Key) bool {
	_, err := os.Lstat(filepath.Join(dir, fileOf(key)))
	return err == nil
}

// Exists reports whether there is a directory of libcni's results.
func Exists(dir string) bool {
	d, err := os.Stat(dir)
	return err == nil && d.IsDir()
}

// Open lists the files in the directory of libcni's results but the one of an attachment. It returns nil if there is no such directory.
func Open(dir string, except plugin.Key) (*Files, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := &Files{dir, map[string][]string{}}
	for _, e := range entries {
		if e.Name() == fileOf(except) {
			continue
		}
		for _, network := range Containers(e.Name(), "-") {
			for _, id := range Containers(e.Name()[len(network)+1:], "-") {
				c.files[id] = append(c.files[id], e.Name())
			}
		}
	}
	return c, err
}

// MayHave reports whether one of the containers may have an attachment. Without a cache none has.
func (c *Files) MayHave(ids ...string) bool {
	return c != nil && slices.ContainsFunc(ids, func(id string) bool {
		return slices.ContainsFunc(c.files[id], func(file string) bool { return c.mayBeOf(file, id) })
	})
}

func (c *Files) mayBeOf(file, id string) bool {
	v, err := read(c.dir, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil || string(v.GetStringBytes("kind")) != "cniCacheV1":
		return true // torn, or of an old libcni: only its name says what it is about
	}
	return string(v.GetStringBytes("containerId")) == id
}

// Containers returns the container ids that can be meant by name, which is one, a separator, and the name of an interface: all of
// them may hold the separator.
func Containers(name, separator string) (ids []string) {
	for i := 1; i < len(name)-1; i++ {
		if name[i:i+1] == separator {
			ids = append(ids, name[:i])
		}
	}
	return ids
}
