package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// look returns which file is at a path.
func look(path string) (Seen, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Seen{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return Seen{Path: path, Inode: st.Ino, Written: time.Unix(st.Mtim.Unix())}, nil
}

// isSame reports whether the file is still the one that was seen.
func (s Seen) isSame() bool {
	now, err := look(s.Path)
	return err == nil && now.Inode == s.Inode && now.Written.Equal(s.Written)
}

// inUse says why an attachment may be in use after all, "" if it is gone: its namespaces and its host end are looked for, and its results have
// to be the ones that were read.
func (it *Item) inUse() string {
	for _, s := range it.Results {
		if s.Netns == "" {
			return "its result in " + s.Path + " names no network namespace"
		}
		ns, err := netns.Open(s.Netns)
		_, lost := os.Stat(filepath.Dir(s.Netns))
		switch {
		case err == nil:
			_ = ns.Close()
			return "its network namespace " + s.Netns + " is there"
		case !errors.Is(err, netns.ErrNotExist):
			return "its network namespace can't be looked at: " + err.Error()
		case !s.isSame():
			return "libcni's result of it is not the one that was read"
		case lost != nil && s.Written.After(bootTime()) && !strings.HasPrefix(s.Netns, "/proc/"):
			return "the directory of its network namespace " + s.Netns + " can't be seen from here"
		}
	}
	if it.ContainerID == "" {
		return ""
	}
	end, err := attach.HostEnd(&plugin.Request{Key: it.key()})
	switch {
	case err != nil:
		return "its host end can't be looked at: " + err.Error()
	case end != nil:
		return "its link " + end.Attrs().Name + " is there, and so its network namespace"
	}
	return ""
}

// bootTime returns when this boot began.
func bootTime() time.Time {
	var since unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}

// Free removes an item of the report, if it is still as it was.
func (r *Report) Free(ctx context.Context, it *Item, o Options) {
	if it.Outcome != "" {
		return
	}
	if why := it.inUse(); why != "" {
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

// release lets go of things: of leases last, so that nobody gets an address that something still points at.
func release(ctx context.Context, things []node.Thing, plugins plugin.Table) error {
	var errs []error
	for _, last := range []bool{false, true} {
		for _, t := range things {
			if row := plugins.Find(t.Plugin); last != (row != nil && row.Kind == plugin.IPAM) {
				continue
			}
			if err := t.Store.Release(ctx, []plugin.Held{t.Held}); err != nil {
				errs = append(errs, fmt.Errorf("release %s: %w", t.What, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Sweep removes what items that were removed still hold: the reference plugins' DEL leaves things behind.
func (r *Report) Sweep(ctx context.Context, o Options) {
	isDone := func(it *Item) bool { return it.Outcome == Removed && len(it.results) > 0 }
	if !slices.ContainsFunc(r.Goes, isDone) {
		return
	}
	n := node.Read(ctx, o.Options)
	things := slices.Clone(n.Unowned)
	for _, a := range n.Attachments {
		if !lives(a) {
			things = append(things, a.Held...)
		}
	}
	for _, it := range r.Goes {
		a := n.Attachment(it.key())
		isAgain := a != nil && slices.ContainsFunc(a.Held, func(t node.Thing) bool { return !lists(it.Held, t) })
		if !isDone(it) || isAgain { // a new ADD of it is under way
			continue
		}
		left := slices.DeleteFunc(slices.Clone(it.Held), func(t node.Thing) bool { return !isStill(things, t) || isShared(n, t) })
		if err := release(ctx, left, o.Plugins); err != nil {
			it.end(fmt.Errorf("remove what the DEL of %s of network %s has left: %w", it.Name(), it.Network, err))
		}
	}
}

// isStill reports whether a thing is in a list that was made later. Whose it is may not be known any more, as its result is gone.
func isStill(list []node.Thing, t node.Thing) bool {
	return slices.ContainsFunc(list, func(now node.Thing) bool {
		isOther := now.Held.Key.ContainerID != "" && now.Held.Key != t.Held.Key
		return !isOther && now.Plugin == t.Plugin && now.What == t.What && reflect.DeepEqual(now.Held.Own, t.Held.Own)
	})
}

func lives(a *node.Attachment) bool { return a.Result != nil || a.State == node.Alive }

// isShared reports whether something that only says its container may be another attachment's of that container.
func isShared(n *node.Node, t node.Thing) bool {
	k := t.Held.Key
	return k.IfName == "" && t.Held.Owner == "" && slices.ContainsFunc(n.Attachments, func(a *node.Attachment) bool {
		isOf := a.ContainerID == k.ContainerID || slices.Contains(t.Held.MayBe, a.ContainerID)
		return isOf && lives(a) && (k.Network == "" || k.Network == a.Network)
	})
}
