// Package network is what a container runtime does between a person and libcni: it finds the network, makes up the attachment's
// parameters from flags and the environment, and runs plugins so that they can clean up.
package network

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/plugins/known"
)

// Node is where this node keeps networks, plugins and results.
type Node struct {
	ConfDir  string
	BinDirs  string // separated by ':'
	CacheDir string
}

// CNI returns libcni for the node.
func (n Node) CNI() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(filepath.SplitList(n.BinDirs), n.CacheDir, Exec(n.CacheDir))
}

// Options say where to look for what is on the node.
func (n Node) Options() node.Options {
	return node.Options{ConfDir: n.ConfDir, CacheDirs: []string{n.CacheDir}, Plugins: known.Plugins, BinDirs: filepath.SplitList(n.BinDirs)}
}

// Load returns the network called name. Unlike libcni it finds a network in spite of another one's file being broken.
func (n Node) Load(name string) (*libcni.NetworkConfigList, error) {
	networks, unread, err := node.Load(n.ConfDir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range networks {
		if w.Name == name {
			return w.List, nil
		}
		names = append(names, w.Name)
	}
	has := "it has none"
	if names != nil {
		slices.Sort(names)
		has = "it has " + strings.Join(slices.Compact(names), ", ")
	}
	errs := []error{fmt.Errorf("no network %q in %s: %s; name another directory with --conf-dir or NETCONFPATH", name, n.ConfDir, has)}
	for _, u := range unread {
		errs = append(errs, fmt.Errorf("%s can't be used: %s", u.What, u.Why))
	}
	return nil, errors.Join(errs...)
}

// HasVerbsOf110 reports whether the network's plugins know GC and STATUS, which came with CNI 1.1.0.
func HasVerbsOf110(list *libcni.NetworkConfigList) bool {
	has, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	return err == nil && has
}
