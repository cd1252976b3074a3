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
)

// Defaults, of cnitool and of the runtimes.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultBinDir  = "/opt/cni/bin"
)

// Node is where this node keeps networks, plugins and results.
type Node struct {
	ConfDir  string
	BinDirs  string // separated by ':'
	CacheDir string
}

// CNI returns libcni for the node.
func (n Node) CNI() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(filepath.SplitList(n.BinDirs), n.CacheDir, &pluginExec{cacheDir: n.CacheDir})
}

// Load returns the network called name. Unlike libcni it finds a network in spite of another one's file being broken.
func (n Node) Load(name string) (*libcni.NetworkConfigList, error) {
	// As in libcni, lists come before single plugins.
	files, err := libcni.ConfFiles(n.ConfDir, []string{".conflist"})
	single, err2 := libcni.ConfFiles(n.ConfDir, []string{".conf", ".json"})
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("look for networks: %w", err)
	}
	var names []string
	var broken []error
	for _, file := range append(files, single...) {
		list, err := loadFile(file)
		if err != nil {
			broken = append(broken, fmt.Errorf("%s can't be used: %w", file, err))
			continue
		}
		if list.Name == name {
			return list, nil
		}
		names = append(names, list.Name)
	}
	has := "it has none"
	if names != nil {
		slices.Sort(names)
		has = "it has " + strings.Join(slices.Compact(names), ", ")
	}
	err = fmt.Errorf("no network %q in %s: %s; name another directory with --conf-dir or NETCONFPATH", name, n.ConfDir, has)
	return nil, errors.Join(err, errors.Join(broken...))
}

func loadFile(path string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(path) == ".conflist" {
		return libcni.NetworkConfFromFile(path)
	}
	//lint:ignore SA1019 single-plugin files are old, and runtimes still read them
	conf, err := libcni.ConfFromFile(path)
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 as above
	return libcni.ConfListFromConf(conf)
}

// HasVerbsOf110 reports whether the network's plugins know GC and STATUS, which came with CNI 1.1.0.
func HasVerbsOf110(list *libcni.NetworkConfigList) bool {
	has, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	return err == nil && has
}
