package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
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
		_, noDir := os.Stat(filepath.Dir(s.Netns))
		switch {
		case err == nil:
			_ = ns.Close()
			return "its network namespace " + s.Netns + " is there"
		case !errors.Is(err, netns.ErrNotExist):
			return "its network namespace can't be looked at: " + err.Error()
		case !s.isSame():
			return "libcni's result of it is not the one that was read"
		case noDir != nil && s.Written.After(bootTime()) && !strings.HasPrefix(s.Netns, "/proc/"):
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

// isLentAgain says which address an attachment has been lent since the report was made: an ADD of it is under way.
func (r *Report) isLentAgain(ctx context.Context, it *Item) string {
	for _, s := range r.node.Stores {
		dir, ok := s.(lease.Dir)
		if !ok || it.ContainerID == "" {
			continue
		}
		store, err := lease.NewStore(string(dir), it.Network, "")
		if err != nil {
			continue // there is none
		}
		leases, err := store.HeldBy(ctx, it.key())
		if err != nil {
			return "its leases can't be looked at: " + err.Error()
		}
		for _, l := range leases {
			isOld := func(t node.Thing) bool { return t.Held.Own == l && t.Held.Since.Equal(store.Since(l)) }
			if !slices.ContainsFunc(it.Held, isOld) {
				return fmt.Sprintf("it has been lent %s meanwhile: an ADD may be under way", l.Address)
			}
		}
	}
	return ""
}
