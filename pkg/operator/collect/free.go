package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Free removes an item of the report, if it is still as it was.
func (r *Report) Free(ctx context.Context, it *Item, o Options) {
	if it.Outcome != "" {
		return
	}
	if why := cmp.Or(it.inUse(o.NotesDir()), r.isLentAgain(ctx, it)); why != "" {
		it.skip(why)
		return
	}
	for _, dir := range append(slices.Clone(node.CacheDirs), o.CacheDirs...) {
		now, err := node.ReadResult(node.PathOf(dir, it.key()))
		if len(it.Results) == 0 && err == nil && now.Key() == it.key() {
			it.skip("it has a result by now")
			return
		}
	}
	if len(it.results) == 0 {
		it.end(release(ctx, it.Held, o.Plugins), o)
		return
	}
	var errs []error
	for i, result := range it.results {
		if err := r.del(ctx, result, it.Results[i], o); err != nil {
			errs = append(errs, fmt.Errorf("remove %s of network %s: %w", it.Name(), it.Network, err))
		}
	}
	if errs != nil { // of a plugin that is missing or fails, others hold nothing back
		errs = append(errs, release(ctx, ownOf(it.Held), o.Plugins))
	}
	it.end(errors.Join(errs...), o)
}

// end notes what came of it. An attachment that was removed as a whole needs its note no more.
func (it *Item) end(err error, o Options) {
	if err == nil && it.ContainerID != "" {
		err = o.NotesDir().Remove(it.key())
	}
	it.Outcome, it.err = Removed, err
	if err != nil {
		it.Outcome, it.Reason = Failed, err.Error()
	}
}

// del calls DEL for what a result says, and removes that result if all of it could be done, unless it was written again meanwhile. A path at
// which another namespace is by now is not given to plugins.
func (r *Report) del(ctx context.Context, result *node.Result, seen Seen, o Options) error {
	list, err := r.listOf(result)
	if err != nil {
		return err
	}
	rt := &libcni.RuntimeConf{ContainerID: result.ContainerID, NetNS: result.NetNS, IfName: result.IfName, Args: result.CniArgs, CapabilityArgs: result.CapabilityArgs}
	if ns, err := netns.Open(rt.NetNS); err == nil {
		rt.NetNS = ""
		_ = ns.Close()
	}
	if !seen.isSame() { // a DEL came meanwhile, or an ADD
		return nil
	}
	if err := DelList(ctx, list, rt, result.Result, o.BinDirs, o.Exec(result.Dir)); err != nil {
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
