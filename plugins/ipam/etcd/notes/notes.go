// Package notes is what a host notes of what it holds in etcd: in files, so that it is known while etcd is not to be reached.
package notes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Dir is the directory in which this host notes what it holds of a network:
//
//	host                            the name under which this host is known in etcd, its lease, and when that was renewed
//	seen                            what this host has last written in etcd, by which it finds out that etcd was restored
//	held/CONTAINER:INTERFACE        the addresses of an attachment
//	open/CONTAINER:INTERFACE        an ADD that is under way, or a DEL of which etcd may not know yet
//
// A process that changes what an attachment holds has a lock on its file in open, and gives it the mode begun before it changes anything. Such a
// file that nobody has locked is of a process that was killed, or of a DEL that did not reach etcd: in both cases the attachment must hold
// nothing.
type Dir struct{ Path string }

// DefaultDir has a directory for each network.
const DefaultDir = "/var/lib/cni/etcd"

// Of returns the directory of a request's network.
func Of(r *plugin.Request) Dir {
	dir := DefaultDir
	r.Config.Object("ipam").String("dataDir", &dir)
	return Dir{filepath.Join(dir, r.Network)}
}

// Failed says what can be done about an error of the files.
func (n Dir) Failed(err error) error {
	if _, is := errors.AsType[*os.PathError](err); is {
		return plugin.CodeErrorf(types.ErrIOFailure, "make sure that "+n.Path+" can be written and its disk is not full", "etcd: note what this host holds: %w", err)
	}
	return err
}

func (n Dir) make() error {
	return errors.Join(os.MkdirAll(filepath.Join(n.Path, "held"), 0o700), os.MkdirAll(filepath.Join(n.Path, "open"), 0o700))
}

func nameOf(k plugin.Key) string { return k.ContainerID + ":" + k.IfName } // an interface's name has no colon

// CheckKey refuses an attachment for which files would have too long names.
func CheckKey(k plugin.Key) error {
	const most = 240 // of 255 that a file system allows: some are of a file that is being written
	if n := len(nameOf(k)); n > most {
		return plugin.ConfigError("use a shorter container id", "etcd: a file that is named by this container and interface would have a name of %d bytes, and %d are the most", n, most)
	}
	return nil
}

// HeldFile and OpenFile are an attachment's.
func (n Dir) HeldFile(k plugin.Key) string { return filepath.Join(n.Path, "held", nameOf(k)) }
func (n Dir) OpenFile(k plugin.Key) string { return filepath.Join(n.Path, "open", nameOf(k)) }

// Keys lists the attachments that have a file in a subdirectory.
func (n Dir) Keys(network, subdirectory string) (list []plugin.Key, err error) {
	entries, err := os.ReadDir(filepath.Join(n.Path, subdirectory))
	if state.IsMissing(err) {
		return nil, nil
	}
	for _, e := range entries {
		if id, ifName, ok := strings.Cut(e.Name(), ":"); ok && !strings.HasPrefix(id, ".") {
			list = append(list, plugin.Key{Network: network, ContainerID: id, IfName: ifName})
		}
	}
	return list, err
}

// lockWait is for how long another call for the same attachment is waited for.
const lockWait = 10 * time.Second

// The modes of a file in open.
const (
	claimed = 0o600
	begun   = 0o640 // and not data, for which a full disk has no room
)

// Claim locks what an attachment holds. With isOpen another call had begun before: what etcd has of it must be freed.
func (n Dir) Claim(ctx context.Context, k plugin.Key) (lock *state.Lock, isOpen bool, err error) {
	if err := n.make(); err != nil {
		return nil, false, err
	}
	lock, err = state.Acquire(ctx, n.OpenFile(k), claimed, lockWait)
	return lock, n.IsOpen(k), err
}

// IsOpen reports whether a call has begun that has not come to its end.
func (n Dir) IsOpen(k plugin.Key) bool {
	file, err := os.Stat(n.OpenFile(k))
	return err == nil && file.Mode().Perm() == begun
}

// Begin says that the attachment is to hold nothing should this call not come to its end. It notes when its ADD began, as the file's time, and
// returns that as the file system keeps it.
func (n Dir) Begin(k plugin.Key, add time.Time) (time.Time, error) {
	if err := errors.Join(os.Chtimes(n.OpenFile(k), add, add), os.Chmod(n.OpenFile(k), begun)); err != nil {
		return add, err
	}
	return n.Began(k)
}

// Began returns when the ADD began of an attachment whose file in open is begun.
func (n Dir) Began(k plugin.Key) (time.Time, error) {
	file, err := os.Stat(n.OpenFile(k))
	if err != nil {
		return time.Time{}, err
	}
	return file.ModTime().UTC(), nil
}

// End locks an attachment, which is to hold nothing from now on, and returns what it held.
func (n Dir) End(ctx context.Context, k plugin.Key) (lock *state.Lock, had Held, err error) {
	lock, isOpen, err := n.Claim(ctx, k)
	if err != nil {
		return nil, had, err
	}
	had, known := n.ReadHeld(k)
	if !isOpen {
		if !known {
			had.Since = time.Now()
		}
		_, err = n.Begin(k, had.Since)
	}
	had.Unsure = had.Unsure || isOpen
	if err = errors.Join(err, state.Remove(n.HeldFile(k))); err != nil {
		lock.Release()
		return nil, had, err
	}
	return lock, had, nil
}

// Held is the content of a file in held.
type Held struct {
	Addresses []netip.Addr `json:"addresses"`
	Since     time.Time    `json:"since"`            // when the ADD began
	Lost      []string     `json:"lost,omitempty"`   // which of them another host has by now, for people
	Unsure    bool         `json:"unsure,omitempty"` // a transaction whose answer was lost may take addresses yet
}

// ReadHeld returns what is noted of an attachment, if it is.
func (n Dir) ReadHeld(k plugin.Key) (has Held, known bool) {
	text, err := state.Read(n.HeldFile(k))
	return has, err == nil && json.Unmarshal(text, &has) == nil
}

// WriteHeld notes it.
func (n Dir) WriteHeld(k plugin.Key, has Held) error {
	return writeJSON(n.HeldFile(k), has)
}

// Joined is the content of the file host.
type Joined struct {
	Host    string    `json:"host"`
	Lease   int64     `json:"lease"`
	Seconds int64     `json:"seconds"` // for which the lease was granted
	Renewed time.Time `json:"renewed"`
}

// Seen is the content of the file seen: what this host knows of etcd's past.
type Seen struct {
	Host     string `json:"host"`
	Cluster  uint64 `json:"cluster"`            // its id
	Revision int64  `json:"revision"`           // at which this host's mark was written last
	Boot     string `json:"boot"`               // of this host, at that time
	Restored string `json:"restored,omitempty"` // the restoration after which it has written back what it holds
}

func (n Dir) seenFile() string { return filepath.Join(n.Path, "seen") }

// ReadSeen returns what a host of this name has noted, nothing if that can't be read.
func (n Dir) ReadSeen(host string) (s Seen) {
	text, err := state.Read(n.seenFile())
	if err != nil || json.Unmarshal(text, &s) != nil || s.Host != host {
		return Seen{Host: host}
	}
	return s
}

// ChangeSeen changes it. Calls do so one after the other.
func (n Dir) ChangeSeen(ctx context.Context, host string, change func(*Seen)) error {
	if err := n.make(); err != nil {
		return err
	}
	lock, err := state.Acquire(ctx, n.seenFile()+".lock", claimed, lockWait)
	if err != nil {
		return err
	}
	defer lock.Release()
	s := n.ReadSeen(host)
	change(&s)
	return writeJSON(n.seenFile(), s)
}

// NumberFile has this host's own number. It lies beside the directory, so that it stays when that is removed.
func (n Dir) NumberFile() string { return filepath.Dir(n.Path) + "-host" }

// Number returns this host's own number, which it makes once.
func (n Dir) Number() (string, error) {
	path := n.NumberFile()
	text, err := state.Read(path)
	if state.IsMissing(err) {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = state.Create(path, []byte(rand.Text()+"\n"), 0o600)
		}
		if err == nil || errors.Is(err, os.ErrExist) {
			text, err = state.Read(path)
		}
	}
	number := strings.TrimSpace(string(text))
	if err == nil && number == "" {
		err = plugin.Errorf("remove the file, and see whether another machine has this host's name", "%s is empty", path)
	}
	return number, err
}

// HostFile is that of this host.
func (n Dir) HostFile() string { return filepath.Join(n.Path, "host") }

// ReadHost returns what is noted of this host, nothing if that can't be read.
func (n Dir) ReadHost() (j Joined) {
	if text, err := state.Read(n.HostFile()); err == nil && json.Unmarshal(text, &j) != nil {
		return Joined{}
	}
	return j
}

// WriteHost notes it.
func (n Dir) WriteHost(j Joined) error { return errors.Join(n.make(), writeJSON(n.HostFile(), j)) }

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return state.Write(path, text, 0o600)
}
