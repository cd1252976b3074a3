package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/presence"
)

// reclaim frees what nobody can be using of a pool that has no free address: abandoned leases and torn files. If there are none, it says
// how full the pool is.
func (x *session) reclaim(p ranges.Pool) error {
	leases, err := x.scan()
	if err != nil {
		return err
	}
	var free []Lease
	stale := 0
	for _, l := range leases {
		switch {
		case !p.Contains(l.Address):
		case l.isTorn() || x.isAbandoned(l):
			free = append(free, l)
		case x.isStale(l):
			stale++
		}
	}
	if len(free) > 0 {
		return x.removeAll(free)
	}
	return tryLater("`cnictl gc "+x.network+" --apply` frees those whose network namespace is gone, and names those of which libcni has no result; "+
		"if none is stale, enlarge the range", "failed to allocate for range %d: no IP addresses available in range set: %s: %d addresses, all taken%s",
		p.Index, p, p.Size(), x.staleText(stale))
}

// staleText says how many leases are stale.
func (x *session) staleText(stale int) string {
	if !cache.Exists(x.results) {
		return fmt.Sprintf("; how many of them are stale is not known without libcni's results, which are not in %q", x.results)
	}
	return fmt.Sprintf(", %d of them by stale leases", stale)
}

// isStale reports whether the owner of a lease is gone, or not known to libcni. Nothing says so of one in the old form.
func (x *session) isStale(l Lease) bool {
	if l.Owner.IfName == "" {
		return false
	}
	if v := x.about(l, time.Time{}); v.State != presence.Unknown {
		return v.State.IsOver()
	}
	_, err := cache.Read(x.results, l.Owner)
	return errors.Is(err, fs.ErrNotExist) && cache.Exists(x.results)
}

func (x *session) about(l Lease, since time.Time) presence.Verdict {
	if x.host == nil {
		x.host = presence.NewHost(presence.DefaultNotes)
	}
	return x.host.About(presence.Asked{Key: l.Owner, Results: x.results, Since: since, Adding: x.Netns})
}

// isAbandoned reports whether the owner of a lease is gone for certain: it is stale, and from before this boot, which no network namespace
// survives, or its namespace has been gone for a while. So it is no lease of an ADD that is still under way, which libcni has no result of.
func (x *session) isAbandoned(l Lease) bool {
	return x.isOld(l) && x.isStale(l) || !x.isOld(l) && x.isLongGone(l)
}

// goneTime is how long an attachment of this boot must be gone before somebody
// else gets its address: its DEL may be late, and something still running.
const goneTime = 5 * time.Minute

// isLongGone reports whether an attachment is gone, and was seen to be so goneTime ago. A lease of one that is seen to be gone is made
// read-only, and so has the time of that as its ctime.
func (x *session) isLongGone(l Lease) bool {
	var st unix.Stat_t
	if unix.Lstat(x.file(l.Address), &st) != nil {
		return false
	}
	isMarked := st.Mode&unix.S_IWUSR == 0
	gone := x.isOver(l)
	switch {
	case gone && isMarked:
		return x.now.Sub(time.Unix(0, st.Ctim.Nano())) >= goneTime
	case gone:
		_ = os.Chmod(x.file(l.Address), 0o400) // if it fails, the address stays taken
	case isMarked:
		_ = os.Chmod(x.file(l.Address), 0o600)
	}
	return false
}

// isOver reports whether the namespace is gone for which a lease was made.
func (x *session) isOver(l Lease) bool {
	made := x.Since(l)
	return !made.IsZero() && x.about(l, made).State.IsOver()
}

// isOld reports whether a lease's file was made, moved or changed last before this boot.
func (x *session) isOld(l Lease) bool {
	var st unix.Stat_t
	return unix.Lstat(x.file(l.Address), &st) == nil && time.Unix(0, st.Ctim.Nano()).Before(x.index.began)
}

// holder says who has a lease and since when and, as the beginning of a remedy, whether that attachment's network namespace is still there.
func (x *session) holder(l Lease) (name, state string) {
	if l.Owner.ContainerID == "" {
		return "something that is not a lease", ""
	}
	name = Name(l.Owner)
	if file, err := os.Stat(x.file(l.Address)); err == nil {
		name += ", since " + file.ModTime().UTC().Format(time.RFC3339)
	}
	if l.Owner.IfName == "" {
		return name, ""
	}
	return name, x.about(l, x.Since(l)).Why + ": "
}
