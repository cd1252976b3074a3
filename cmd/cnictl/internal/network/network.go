// Package network is what a container runtime does between a person and libcni: it finds the network, makes up the attachment's
// parameters from flags and the environment, and runs plugins so that they can clean up.
package network

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/runtimes"
	"github.com/cnibox/cnibox/pkg/plugin"
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
	return node.Options{ConfDir: n.ConfDir, CacheDirs: []string{n.CacheDir}, Plugins: known.Plugins, BinDirs: filepath.SplitList(n.BinDirs), Runtimes: runtimes.All}
}

// Del calls the DEL of all plugins of a network, and goes on past one that is missing or fails. Then what cnibox's plugins hold is released all the
// same, and libcni's result stays for the next DEL.
func (n Node) Del(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	err := collect.DelKept(ctx, list, rt, n.CacheDir, filepath.SplitList(n.BinDirs), Exec(n.CacheDir))
	if err == nil {
		return nil
	}
	return errors.Join(err, n.Release(ctx, keyOf(list.Name, rt)))
}

// Release releases what cnibox's plugins hold for an attachment.
func (n Node) Release(ctx context.Context, key plugin.Key) error {
	o := n.Options()
	if a := node.Read(ctx, o).Attachment(key); a != nil {
		if err := collect.Release(ctx, a, o.Plugins); err != nil {
			return err
		}
	}
	return o.NotesDir().Remove(key)
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
