package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Notes is a directory with a file for each attachment that says which network namespace ADD was given.
type Notes string

// DefaultNotes is where they are. It outlives a boot, as leases do.
const DefaultNotes Notes = "/var/lib/cni/cnibox"

// Note says which network namespace an attachment was made in.
type Note struct {
	plugin.Key
	Netns  string        // the path that ADD was given
	Inode  uint64        // of the namespace
	Cookie uint64        // of the namespace, which no other one of this boot has; 0 before Linux 5.14
	Boot   string        // the id of the boot
	Uptime time.Duration // since then
	PIDs   uint64        // the inode of the PID namespace, by which processes are seen

	Written time.Time // the file
}

func (n Notes) path(k plugin.Key) string {
	return filepath.Join(string(n), fmt.Sprintf("%x", k.ID("namespace")))
}

// Write notes the namespace that an ADD is given. isNew is false if the same was noted before, which an ADD that fails must leave. If another is
// noted, and may not be replaced, the error is fs.ErrExist.
func (n Notes) Write(k plugin.Key, path string, pair *netns.Pair, mayReplace bool) (isNew bool, err error) {
	note := Note{Key: k, Netns: path, Boot: bootID(), PIDs: inodeOf("/proc/self/ns/pid")}
	if note.Inode, note.Cookie, err = identify(pair); err != nil {
		return false, err
	}
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err == nil {
		note.Uptime = time.Duration(since.Nano())
	}
	file := n.path(k)
	err = state.Create(file, note.text(), 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(string(n), 0o700); err == nil {
			err = state.Create(file, note.text(), 0o600)
		}
	}
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	if old, _ := n.Read(k); old != nil && old.isSame(note) && !n.IsDeleting(k, time.Time{}) {
		return false, nil
	}
	if !mayReplace {
		return false, err
	}
	return true, state.Write(file, note.text(), 0o600)
}

func (n Note) isSame(other Note) bool {
	return n.Boot == other.Boot && n.Inode == other.Inode && n.Cookie == other.Cookie && n.Netns == other.Netns
}

func (n Note) text() []byte {
	o := conf.New()
	n.SetIn(o)
	o.Set("netns", n.Netns)
	o.Set("inode", strconv.FormatUint(n.Inode, 10))
	o.Set("cookie", strconv.FormatUint(n.Cookie, 10))
	o.Set("boot", n.Boot)
	o.Set("uptime", n.Uptime.String())
	o.Set("pids", strconv.FormatUint(n.PIDs, 10))
	return append(o.JSON(), '\n')
}

// deleting is the mode of the note of an attachment whose DEL has begun: no disk is too full for that, and nobody else sets it.
const deleting = 0o600 | fs.ModeSticky

// ErrDeleting says that an attachment's DEL has begun.
var ErrDeleting = errors.New("its DEL has begun, and is the runtime's to end")

// BeginDel notes that an attachment's DEL has begun, before it takes anything away: nothing is put back from then on. It waits for what
// is being put back.
func (n Notes) BeginDel(ctx context.Context, k plugin.Key) {
	const most = 10 * time.Second
	if os.Chmod(n.path(k), deleting) != nil {
		return // there is no note
	}
	lock, _ := state.AcquireThere(ctx, n.path(k), most)
	lock.Release()
}

// DelayDel has the DEL of an attachment that was made at a time wait until the lock is released, so that things can be put back. It fails with
// ErrDeleting if the DEL has begun. Without a note there is no lock.
func (n Notes) DelayDel(ctx context.Context, k plugin.Key, made time.Time) (*state.Lock, error) {
	lock, err := state.AcquireThere(ctx, n.path(k), time.Minute)
	if lock != nil && n.IsDeleting(k, made) {
		lock.Release()
		return nil, ErrDeleting
	}
	return lock, err
}

// IsDeleting reports whether the DEL of an attachment that was made at a time has begun, and has not ended.
func (n Notes) IsDeleting(k plugin.Key, made time.Time) bool { return !n.DelBegan(k, made).IsZero() }

// DelBegan returns when the DEL of an attachment began that has not ended, the last one if it was repeated; the zero time if there is none. A
// DEL from before the attachment was made was an earlier one's: other suites' plugins end a DEL without a note of that. Both times are of files.
func (n Notes) DelBegan(k plugin.Key, made time.Time) (began time.Time) {
	var file unix.Stat_t
	if unix.Stat(n.path(k), &file) == nil && file.Mode&unix.S_ISVTX != 0 {
		began = time.Unix(file.Ctim.Unix())
	}
	if made.After(began) {
		return time.Time{}
	}
	return began
}

// Remove removes what is noted of an attachment. That nothing is noted is no error.
func (n Notes) Remove(k plugin.Key) error { return state.Remove(n.path(k)) }

// Read returns what is noted of an attachment, nil if nothing is that can be read.
func (n Notes) Read(k plugin.Key) (*Note, error) {
	note, err := readNote(n.path(k))
	if note != nil && note.Key != k {
		note = nil
	}
	return note, err
}

// All returns all notes. A torn one says nothing.
func (n Notes) All() (list []*Note, err error) {
	entries, err := os.ReadDir(string(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if note, _ := readNote(filepath.Join(string(n), e.Name())); note != nil && n.path(note.Key) == filepath.Join(string(n), e.Name()) {
			list = append(list, note)
		}
	}
	return list, err
}

// Held lists the notes. Notes are a plugin.Store for the GC of a network.
func (n Notes) Held(_ context.Context, network string) (list []plugin.Held, err error) {
	all, err := n.All()
	for _, note := range all {
		if network == "" || note.Network == network {
			list = append(list, plugin.Held{Key: note.Key, What: "note of its network namespace", Own: note})
		}
	}
	return list, err
}

// Release removes notes that are as they were listed.
func (n Notes) Release(_ context.Context, list []plugin.Held) error {
	var errs []error
	for _, h := range list {
		if now, _ := n.Read(h.Key); now != nil && now.isSame(*h.Own.(*Note)) {
			errs = append(errs, n.Remove(h.Key))
		}
	}
	return errors.Join(errs...)
}

func readNote(path string) (*Note, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	text, err := state.Read(path)
	if err != nil {
		return nil, err
	}
	o, err := conf.Parse(text)
	if err != nil {
		return nil, err
	}
	n := &Note{Key: plugin.KeyIn(o), Written: file.ModTime()}
	var inode, cookie, uptime, pids string
	for key, to := range map[string]*string{"netns": &n.Netns, "boot": &n.Boot, "inode": &inode, "cookie": &cookie, "uptime": &uptime, "pids": &pids} {
		o.String(key, to)
	}
	var failed [4]error
	n.Inode, failed[0] = strconv.ParseUint(inode, 10, 64)
	n.Cookie, failed[1] = strconv.ParseUint(cookie, 10, 64)
	n.PIDs, failed[2] = strconv.ParseUint(pids, 10, 64)
	n.Uptime, failed[3] = time.ParseDuration(uptime)
	if err := cmp.Or(o.Err(), errors.Join(failed[:]...)); err != nil {
		return nil, err
	}
	return n, nil
}

// longestADD is more than passes between an ADD's note, its leases and its result.
const longestADD = 5 * time.Minute

// CountsFor reports whether the note is of the ADD that something else was written for at a time. Other plugins may have made the attachment
// again, and note nothing. Both times are of files that one ADD has written, so that the clock may have been set since.
func (n *Note) CountsFor(written time.Time) bool {
	return n != nil && (written.IsZero() || !written.After(n.Written.Add(longestADD)))
}

// identify returns the inode and the cookie of the container's namespace.
func identify(pair *netns.Pair) (inode, cookie uint64, err error) {
	if err := pair.Err(); err != nil {
		return 0, 0, err
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(pair.NS().Fd()), &file); err != nil {
		return 0, 0, err
	}
	err = pair.Inside(func() (err error) { cookie, err = netns.OwnCookie(); return err })
	return file.Ino, cookie, err
}

// bootID names this boot, as long as the kernel runs.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// inodeOf returns a file's inode, 0 if there is none.
func inodeOf(path string) uint64 {
	var file unix.Stat_t
	if unix.Stat(path, &file) != nil {
		return 0
	}
	return file.Ino
}
