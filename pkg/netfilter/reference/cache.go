package reference

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// results is libcni's cache as it is when it is first looked at.
type results struct {
	read  bool
	there bool
	names []string // of files: NETWORK-CONTAINERID-IFNAME, all of which may have a "-"

	answers map[plugin.Key]bool // of hasOther: containers have many rules
}

func (c *results) load() error {
	if c.read {
		return nil
	}
	entries, err := os.ReadDir(netfilter.ResultCache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.read, c.there = true, err == nil
	for _, e := range entries {
		c.names = append(c.names, e.Name())
	}
	return nil
}

// exists reports whether there is a cache.
func (c *results) exists() (bool, error) {
	err := c.load()
	return c.there, err
}

// hasOther reports whether a container has an attachment besides one. An entry
// that can't be read may be one.
func (c *results) hasOther(k plugin.Key) (bool, error) {
	if answer, asked := c.answers[k]; asked {
		return answer, nil
	}
	if err := c.load(); err != nil {
		return false, err
	}
	answer, err := c.search(k)
	if err != nil {
		return false, err
	}
	if c.answers == nil {
		c.answers = map[plugin.Key]bool{}
	}
	c.answers[k] = answer
	return answer, nil
}

func (c *results) search(k plugin.Key) (bool, error) {
	own := k.Network + "-" + k.ContainerID + "-" + k.IfName
	for _, name := range c.names {
		if name == own || !strings.Contains(name, "-"+k.ContainerID+"-") {
			continue
		}
		other, err := isOf(filepath.Join(netfilter.ResultCache, name), k.ContainerID)
		if other || err != nil {
			return other, err
		}
	}
	return false, nil
}

// isOf reports whether a file of the cache is, or may be, about a container.
func isOf(path, containerID string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	v, err := fastjson.ParseBytes(text)
	if err != nil || string(v.GetStringBytes("kind")) != "cniCacheV1" {
		return true, nil // torn, or of an old libcni: only its name says what it is about
	}
	return string(v.GetStringBytes("containerId")) == containerID, nil
}

// mayHave reports whether a file may be about the container in CONTAINERID-IFNAME,
// both of which may have a "-".
func (c *results) mayHave(name string) bool {
	for i := range name {
		if i == 0 || name[i] != '-' {
			continue
		}
		if slices.ContainsFunc(c.names, func(file string) bool { return strings.Contains(file, "-"+name[:i]+"-") }) {
			return true
		}
	}
	return false
}
