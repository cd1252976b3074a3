package collect

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/presence"
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

// inUse says why an attachment may be in use after all, "" if it is as it was. Its results have to be the ones that were read.
func (it *Item) inUse(notes presence.Notes) string {
	for _, s := range it.Results {
		if !s.isSame() {
			return "libcni's result of it is not the one that was read"
		}
	}
	if it.ContainerID == "" {
		return ""
	}
	dirs := []string{""}
	if len(it.Results) > 0 {
		dirs = nil
	}
	for _, s := range it.Results {
		dirs = append(dirs, filepath.Dir(s.Path))
	}
	host := presence.NewHost(notes)
	for _, dir := range dirs {
		is := host.About(presence.Asked{Key: it.key(), Results: dir})
		isAsBefore := is.State == node.Unknown && it.state == node.Unknown // it goes by a list of what is valid, or is a mere note
		if !is.State.IsOver() && !isAsBefore {
			return is.Why
		}
	}
	return ""
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
			isOld := func(t node.Holding) bool { return t.Held.Own == l && t.Held.Since.Equal(store.Since(l)) }
			if !slices.ContainsFunc(it.Held, isOld) {
				return fmt.Sprintf("it has been lent %s meanwhile: an ADD may be under way", l.Address)
			}
		}
	}
	return ""
}
