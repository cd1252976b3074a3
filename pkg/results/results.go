// Package results reads libcni's cache, which has a file for each attachment until its DEL, to say whether containers are in use.
// What it can't read counts as in use.
package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Cache is what the cache has of attachments, without one that is of no interest.
type Cache struct {
	dir   string
	files []string // NETWORK-CONTAINERID-IFNAME, all of which may have a "-"
}

// Open lists the files in the directory of libcni's results but the one of an attachment. It returns nil if there is no such directory.
func Open(dir string, except plugin.Key) (*Cache, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := &Cache{dir: dir}
	for _, e := range entries {
		if e.Name() != except.Network+"-"+except.ContainerID+"-"+except.IfName {
			c.files = append(c.files, e.Name())
		}
	}
	return c, err
}

// Has reports whether one of the containers has an attachment. Without a cache none has.
func (c *Cache) Has(ids ...string) bool {
	return c != nil && slices.ContainsFunc(c.files, func(file string) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(file, "-"+id+"-") && c.mayBeOf(file, id) })
	})
}

func (c *Cache) mayBeOf(file, id string) bool {
	text, err := os.ReadFile(filepath.Join(c.dir, file))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	v, err := fastjson.ParseBytes(text)
	if err != nil || string(v.GetStringBytes("kind")) != "cniCacheV1" {
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
