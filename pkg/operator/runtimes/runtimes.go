// Package runtimes says where the container runtimes of this node look for networks and plugins: by their own configuration, or by their
// defaults.
package runtimes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/trust"
)

// Runtime is a container runtime, and where it looks for networks and plugins.
type Runtime struct {
	Name     string
	Process  string // what its processes are called
	TakesOne bool   // of the networks in its directory it takes the first for all containers, and is told when that changes
	ConfDir  string
	BinDirs  []string
	Files    []string // of its configuration, that were read

	format  int    // the "version" of its configuration's form, 0 if it has none
	backend string // podman's network_backend

	ownLoopback bool // containerd's use_internal_loopback
	noPods      bool // containerd's CRI is disabled
}

// Options say where to look.
type Options struct {
	Root      string         // where the node's files are; "" is /
	Processes []node.Process // of the node
	ConfDir   string         // of runtimes that name none and have the usual one; "" is node.DefaultConfDir
}

func (o Options) tree() trust.Tree { return trust.Tree(cmp.Or(o.Root, string(trust.Host))) }

// Names are the names that Find knows.
func Names() (names []string) {
	for _, c := range configurations {
		names = append(names, c.word)
	}
	return names
}

// Here returns the runtimes that are configured here, or run. A configuration that can't be read is an error beside the list.
func Here(o Options) (list []Runtime, err error) {
	for _, c := range configurations {
		if c.partOf != "" {
			continue
		}
		c.files = slices.Concat(c.files, c.others)
		runs := false
		for _, p := range o.Processes {
			if p.Name == c.Process && p.OfNode {
				runs = true
				if files := configFiles(p); files != nil {
					c.files, c.named = nil, files
				}
			}
		}
		r, wrong := c.read(o)
		err = errors.Join(err, wrong)
		if wrong := r.trusted(o); wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		if r.Files != nil && (c.needs == "" || c.needs == r.backend) || runs && c.needs == "" {
			list = append(list, r)
		}
	}
	return list, err
}

// Find returns a runtime by the word that people use for it, whether it is configured here or not: a runtime without a configuration has its
// defaults.
func Find(word string, o Options) (Runtime, error) {
	i := slices.IndexFunc(configurations, func(c configuration) bool { return c.word == word })
	if i < 0 {
		return Runtime{}, fmt.Errorf("there is no runtime %q: it is one of %s", word, strings.Join(Names(), ", "))
	}
	c := configurations[i]
	for _, p := range o.Processes {
		// Several may run: k3s has a containerd of its own.
		if p.Name != c.Process || !p.OfNode {
			continue
		}
		if files := configFiles(p); files != nil && isOfK3s(files[0]) == (c.word == "k3s") {
			c.files, c.named = nil, files
		}
	}
	r, err := c.read(o)
	if err = cmp.Or(err, r.trusted(o)); err != nil {
		return Runtime{}, err
	}
	if c.needs != "" && r.backend != "" && r.backend != c.needs {
		return Runtime{}, fmt.Errorf(`%s uses no CNI networks: %s has network_backend = "%s"; set it to "%s", or make the network with %s itself`,
			r.Name, r.Files[len(r.Files)-1], r.backend, c.needs, r.Name)
	}
	return r, nil
}

// Says returns where the runtime's directories were read from, for people.
func (r Runtime) Says() string {
	c := configurations[slices.IndexFunc(configurations, func(c configuration) bool { return c.Name == r.Name })]
	says := "by default, as there is no " + strings.Join(c.files, " or ")
	if r.Files != nil {
		says = "by " + strings.Join(r.Files, ", ")
	}
	if c.needs != r.backend {
		says += fmt.Sprintf(`; nothing there says network_backend = "%s", and without that it may use no CNI networks`, c.needs)
	}
	return says
}

// BinDir returns the runtime's directory to install plugins in.
func (r Runtime) BinDir() string { return BinDir(r.BinDirs) }

// BinDir returns, of the directories in which a runtime looks for plugins, the one that has cnibox, else the first that is there.
func BinDir(dirs []string) string {
	there := ""
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, pluginfile.Binary)); err == nil {
			return dir
		}
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			there = cmp.Or(there, dir)
		}
	}
	switch {
	case there != "":
		return there
	case slices.Contains(dirs, node.DefaultBinDir) || len(dirs) == 0:
		return node.DefaultBinDir
	}
	return dirs[0]
}

// configFiles returns the files and directories that a runtime's command line names in place of its usual files.
func configFiles(p node.Process) []string {
	text, _ := os.ReadFile(p.Path("cmdline"))
	return configFilesIn(strings.Split(string(text), "\x00"))
}

func configFilesIn(arguments []string) (files []string) {
	for i, a := range arguments {
		flag, value, inOne := strings.Cut(a, "=")
		switch {
		case flag != "--config" && flag != "-config" && flag != "-c":
		case inOne:
			files = append(files, value)
		case i+1 < len(arguments):
			files = append(files, arguments[i+1])
		}
	}
	return files
}

// isOfK3s reports whether a configuration is the one that k3s, or rke2, writes for its containerd, wherever it keeps its data.
func isOfK3s(file string) bool { return strings.HasSuffix(file, "/agent/etc/containerd/config.toml") }
