package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Free removes an item of the report, if it is still as it was.
func (r *Report) Free(ctx context.Context, it *Item, o Options) {
	if it.Outcome != "" {
		return
	}
	if why := cmp.Or(it.inUse(), r.isLentAgain(ctx, it)); why != "" {
		it.skip(why)
		return
	}
	for _, dir := range append(slices.Clone(node.CacheDirs), o.CacheDirs...) {
		if _, err := os.Lstat(node.PathOf(dir, it.key())); len(it.Results) == 0 && it.ContainerID != "" && !errors.Is(err, fs.ErrNotExist) {
			it.skip("it has a result by now")
			return
		}
	}
	if len(it.results) == 0 {
		it.end(release(ctx, it.Held, o.Plugins))
		return
	}
	for i, result := range it.results {
		if err := r.del(ctx, result, it.Results[i], o); err != nil {
			it.end(fmt.Errorf("remove %s of network %s: %w", it.Name(), it.Network, err))
			return
		}
	}
	it.end(nil)
}

func (it *Item) end(err error) {
	it.Outcome, it.err = Removed, err
	if err != nil {
		it.Outcome, it.Reason = Failed, err.Error()
	}
}

// del calls DEL for what a result says. libcni gets the result in a cache of its own: so it can read no other one than was looked at, and
// removes none that a new ADD has written meanwhile.
func (r *Report) del(ctx context.Context, result *node.Result, seen Seen, o Options) error {
	list, err := r.listOf(result)
	if err != nil {
		return err
	}
	text, err := state.Read(result.Path)
	if errors.Is(err, fs.ErrNotExist) { // a DEL came meanwhile, or it was read by two paths
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cnictl-gc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	own := node.PathOf(dir, result.Key())
	if err := errors.Join(os.Mkdir(filepath.Dir(own), 0o700), os.WriteFile(own, text, 0o600)); err != nil {
		return err
	}
	if !seen.isSame() {
		return errors.New("libcni's result of it has been written again just now")
	}
	rt := &libcni.RuntimeConf{ContainerID: result.ContainerID, NetNS: result.NetNS, IfName: result.IfName, Args: result.CniArgs, CapabilityArgs: result.CapabilityArgs}
	if err := libcni.NewCNIConfigWithCacheDir(o.BinDirs, dir, o.Exec(result.Dir)).DelNetworkList(ctx, list, rt); err != nil {
		return err
	}
	if seen.isSame() {
		return state.Remove(result.Path)
	}
	return nil
}

// listOf returns the configuration that an attachment was made with: the network's file if it has not changed, or what libcni has kept.
func (r *Report) listOf(result *node.Result) (*libcni.NetworkConfigList, error) {
	w := r.node.Network(result.Network)
	hasFile := w != nil && w.List != nil
	if hasFile && bytes.Equal(w.List.Bytes, result.Config) {
		return w.List, nil
	}
	list, err := libcni.NetworkConfFromBytes(result.Config)
	if err != nil {
		list, err = fromOldForm(result.Config)
	}
	switch {
	case err == nil && list.Name == result.Network:
		return list, nil
	case hasFile:
		return w.List, nil
	}
	return nil, plugin.Errorf("write the network's file again, and repeat this", "there is no configuration of network %s: its file is gone, and libcni's result has none that can be used", result.Network)
}

// fromOldForm reads the configuration of one plugin alone.
func fromOldForm(text []byte) (*libcni.NetworkConfigList, error) {
	//lint:ignore SA1019 runtimes still use networks of this form
	conf, err := libcni.ConfFromBytes(text)
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 as above
	return libcni.ConfListFromConf(conf)
}
