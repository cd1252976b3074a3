// Package network is what a container runtime does between a person and libcni: it finds the network, makes up the attachment's
// parameters from flags and the environment, and runs plugins so that they can clean up.
package network

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Node is where this node keeps networks, plugins and results.
type Node struct {
	node.Options
}

// CNI returns libcni for the node. It knows one cache directory, the first.
func (n Node) CNI() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(n.BinDirs, n.CacheDirs[0], Exec(n.CacheDirs[0]))
}

// chooseCache puts the cache directory first that has a result of an attachment.
func (n *Node) chooseCache(k plugin.Key) {
	for _, dir := range slices.Concat(n.CacheDirs, node.CacheDirs) {
		if _, err := os.Lstat(node.PathOf(dir, k)); err == nil {
			n.CacheDirs = slices.Insert(slices.Clone(n.CacheDirs), 0, dir)
			return
		}
	}
}

// Del calls the DEL of all plugins of a network, and goes on past one that is missing or fails. Then what cnibox's plugins hold is released all the
// same, and libcni's result stays for the next DEL.
func (n Node) Del(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	err := collect.DelKept(ctx, list, rt, n.CacheDirs[0], n.BinDirs, Exec(n.CacheDirs[0]))
	if err == nil {
		return nil
	}
	return errors.Join(err, n.Release(ctx, keyOf(list.Name, rt)))
}

// Release releases what cnibox's plugins hold for an attachment.
func (n Node) Release(ctx context.Context, key plugin.Key) error {
	if a := node.Read(ctx, n.Options).Attachment(key); a != nil {
		if err := collect.Release(ctx, a, n.Plugins); err != nil {
			return err
		}
	}
	return n.NotesDir().Remove(key)
}

// Load returns the network called name. Unlike libcni it finds a network in spite of another one's file being broken.
func (n Node) Load(name string) (*libcni.NetworkConfigList, error) {
	networks, unread, err := node.Load(n.ConfDir)
	if err != nil {
		return nil, err
	}
	for _, w := range networks {
		if w.Name == name {
			return w.List, nil
		}
	}
	return nil, lookup.UnknownNetwork(name, n.ConfDir, networks, unread)
}

// HasVerbsOf110 reports whether the network's plugins know GC and STATUS, which came with CNI 1.1.0.
func HasVerbsOf110(list *libcni.NetworkConfigList) bool {
	has, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	return err == nil && has
}
