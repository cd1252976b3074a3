package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// notes is the directory in which this host notes what it holds of a network:
//
//	host                            the name under which this host is known in etcd, its lease, and when that was renewed
//	held/CONTAINER:INTERFACE        the addresses of an attachment
//	open/CONTAINER:INTERFACE        an ADD that is under way, or a DEL of which etcd may not know yet
//
// Who changes what an attachment holds has a lock on its file in open, and gives it the mode begun before it changes anything. Such a file that
// nobody has locked is of a process that was killed, or of a DEL that did not reach etcd: in both cases the attachment is to hold nothing.
type notes struct{ dir string }

func notesOf(r *plugin.Request) notes {
	dir := defaultDataDir
	r.Config.Object("ipam").String("dataDir", &dir)
	return notes{filepath.Join(dir, r.Network)}
}

// failed says what can be done about an error of the files.
func (n notes) failed(err error) error {
	if _, is := errors.AsType[*os.PathError](err); is {
		return plugin.Errorf("make sure that "+n.dir+" can be written and its disk is not full", "etcd: note what this host holds: %w", err)
	}
	return err
}

func (n notes) make() error {
	return errors.Join(os.MkdirAll(filepath.Join(n.dir, "held"), 0o700), os.MkdirAll(filepath.Join(n.dir, "open"), 0o700))
}

func nameOf(k plugin.Key) string { return k.ContainerID + ":" + k.IfName } // an interface's name has no colon

func (n notes) heldFile(k plugin.Key) string { return filepath.Join(n.dir, "held", nameOf(k)) }
func (n notes) openFile(k plugin.Key) string { return filepath.Join(n.dir, "open", nameOf(k)) }

// keys lists the attachments that have a file in a subdirectory.
func (n notes) keys(network, subdirectory string) (list []plugin.Key, err error) {
	entries, err := os.ReadDir(filepath.Join(n.dir, subdirectory))
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

// claim locks what an attachment holds. With isOpen another call had begun before: what etcd has of it is to be freed.
func (n notes) claim(ctx context.Context, k plugin.Key) (lock *state.Lock, isOpen bool, err error) {
	if err := n.make(); err != nil {
		return nil, false, err
	}
	lock, err = state.Acquire(ctx, n.openFile(k), claimed, lockWait)
	return lock, n.isOpen(k), err
}

func (n notes) isOpen(k plugin.Key) bool {
	file, err := os.Stat(n.openFile(k))
	return err == nil && file.Mode().Perm() == begun
}

// begin says that the attachment is to hold nothing should this call not come to its end.
func (n notes) begin(k plugin.Key) error { return os.Chmod(n.openFile(k), begun) }

// heldNote is the content of a file in held.
type heldNote struct {
	Addresses []netip.Addr `json:"addresses"`
	Lost      []string     `json:"lost,omitempty"`   // which of them another host has by now, for people
	Unsure    bool         `json:"unsure,omitempty"` // a transaction whose answer was lost may take another address yet
}

func (n notes) readHeld(k plugin.Key) (has heldNote, known bool) {
	text, err := state.Read(n.heldFile(k))
	return has, err == nil && json.Unmarshal(text, &has) == nil
}

func (n notes) writeHeld(k plugin.Key, has heldNote) error {
	return writeJSON(n.heldFile(k), has)
}

// joined is the content of the file host.
type joined struct {
	Host    string    `json:"host"`
	Lease   int64     `json:"lease"`
	Seconds int64     `json:"seconds"` // for which it was granted
	Renewed time.Time `json:"renewed"`
}

func (n notes) hostFile() string { return filepath.Join(n.dir, "host") }

func (n notes) readHost() (j joined) {
	if text, err := state.Read(n.hostFile()); err == nil && json.Unmarshal(text, &j) != nil {
		return joined{}
	}
	return j
}

func (n notes) writeHost(j joined) error { return errors.Join(n.make(), writeJSON(n.hostFile(), j)) }

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return state.Write(path, text, 0o600)
}
