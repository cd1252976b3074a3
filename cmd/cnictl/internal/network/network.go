// Package network is what a container runtime does between a person and
// libcni: it finds the network, makes up the attachment's parameters from flags
// and the environment, and runs plugins so that they can clean up.
package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	BinDirs  []string
	CacheDir string    // "" is libcni's own, /var/lib/cni
	Stderr   io.Writer // what plugins say there
}

// CNI returns libcni for the node.
func (n Node) CNI() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(n.BinDirs, n.CacheDir, &pluginExec{stderr: n.Stderr, cacheDir: n.CacheDir})
}

// broken is a file that can't be read as a network.
type broken struct {
	path string
	err  error
}

// Load returns the network called name. Unlike libcni it finds a network in
// spite of another one's file being broken.
func (n Node) Load(name string) (*libcni.NetworkConfigList, error) {
	files, err := configFiles(n.ConfDir)
	if err != nil {
		return nil, fmt.Errorf("look for networks: %w", err)
	}
	var names []string
	var unread []broken
	for _, file := range files {
		list, err := loadFile(file)
		switch {
		case err != nil:
			unread = append(unread, broken{file, err})
		case list.Name == name:
			return list, nil
		default:
			names = append(names, list.Name)
		}
	}
	return nil, n.notFound(name, names, unread)
}

func (n Node) notFound(name string, names []string, unread []broken) error {
	slices.Sort(names)
	has := "it has " + strings.Join(slices.Compact(names), ", ")
	if names == nil {
		has = "it has none"
	}
	err := fmt.Errorf("no network %q in %s: %s; name another directory with --conf-dir or NETCONFPATH", name, n.ConfDir, has)
	for _, b := range unread {
		err = errors.Join(err, fmt.Errorf("%s can't be used: %w", b.path, b.err))
	}
	return err
}

// configFiles returns the files that libcni looks at, in its order: lists
// first, then single plugins.
func configFiles(dir string) ([]string, error) {
	lists, err := libcni.ConfFiles(dir, []string{".conflist"})
	if err != nil {
		return nil, err
	}
	single, err := libcni.ConfFiles(dir, []string{".conf", ".json"})
	if err != nil {
		return nil, err
	}
	slices.Sort(lists)
	slices.Sort(single)
	return append(lists, single...), nil
}

func loadFile(path string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(path) == ".conflist" {
		return libcni.NetworkConfFromFile(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	conf, err := libcni.NetworkPluginConfFromBytes(text)
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 single-plugin files are old, and runtimes still read them
	return libcni.ConfListFromConf(conf)
}

// LoadForDel is Load for a network that may have been removed since its ADD:
// then it is what libcni has kept of it with the attachment's result.
func (n Node) LoadForDel(name string, rt *libcni.RuntimeConf) (*libcni.NetworkConfigList, error) {
	list, err := n.Load(name)
	if err == nil {
		return list, nil
	}
	text, _, cached := n.CNI().GetNetworkListCachedConfig(&libcni.NetworkConfigList{Name: name}, rt)
	if cached != nil || len(text) == 0 {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(text)
}

// Status asks plugin i of the network whether it could serve an ADD. A network
// older than CNI 1.1.0 knows no STATUS, and the answer is nil.
func (n Node) Status(ctx context.Context, list *libcni.NetworkConfigList, i int) error {
	one := *list
	one.Plugins = list.Plugins[i : i+1]
	return n.CNI().GetStatusNetworkList(ctx, &one)
}

// HasVerbsOf110 tells whether the network's plugins know GC and STATUS, which
// came with CNI 1.1.0.
func HasVerbsOf110(list *libcni.NetworkConfigList) bool {
	has, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	return err == nil && has
}
