// Package results reads libcni's cache, which has a file for each attachment until its DEL, to say whether containers are in use.
// What it can't read counts as in use: in doubt Known… is false, and May… is true.
package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Cache is what the cache has of attachments, without one that is of no interest.
type Cache struct {
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

// netnsIn returns the path of the network namespace, which libcni before 1.2 does not write down: the result of ADD has it too.
func netnsIn(file *fastjson.Value, ifName string) string {
	if path := file.GetStringBytes("netns"); len(path) > 0 {
		return string(path)
	}
	for _, i := range file.GetArray("result", "interfaces") {
		if sandbox := i.GetStringBytes("sandbox"); len(sandbox) > 0 && string(i.GetStringBytes("name")) == ifName {
			return string(sandbox)
		}
	}
	return ""
}

// Open lists the files in the directory of libcni's results but the one of an attachment. It returns nil if there is no such directory.
func Open(dir string, except plugin.Key) (*Cache, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := &Cache{dir, map[string][]string{}}
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
func (c *Cache) MayHave(ids ...string) bool {
	return c != nil && slices.ContainsFunc(ids, func(id string) bool {
		return slices.ContainsFunc(c.files[id], func(file string) bool { return c.mayBeOf(file, id) })
	})
}

func (c *Cache) mayBeOf(file, id string) bool {
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
