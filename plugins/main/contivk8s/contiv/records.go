package contiv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// Dir has a file for each attachment that a daemon was asked to make, until it has deleted it.
const Dir = "/var/lib/cni/contivk8s"

// queueDir has a file for each attachment that was deleted while its daemon could not be told. It is there only if one is in it.
const queueDir = Dir + "/deletions"

const suffix = ".json"

// Record is what is noted of an attachment, or of its deletion.
type Record struct {
	plugin.Key
	Pod       string
	Namespace string // the pod's, in Kubernetes
	Socket    string // the daemon's
	Since     time.Time
	Tried     time.Time // when the daemon last failed at the deletion; zero if it was not reached

	path string
}

// Request returns the body of a DEL of the attachment.
func (r Record) Request() Request {
	return Request{Pod: r.Pod, Namespace: r.Namespace, ContainerID: r.ContainerID, IfName: r.IfName}
}

// PodName returns the pod's name as people write it.
func (r Record) PodName() string { return r.Namespace + "/" + r.Pod }

func pathIn(dir string, k plugin.Key) string {
	return filepath.Join(dir, fmt.Sprintf("%x", k.ID("contivk8s"))+suffix)
}

// Write notes an attachment.
func (r Record) Write() error {
	if err := os.MkdirAll(Dir, 0o700); err != nil {
		return err
	}
	return r.write(Dir)
}

// Queue notes that an attachment must be deleted.
func (r Record) Queue() error {
	err := error(fs.ErrNotExist)
	for range 3 { // another process may have found the directory empty
		if err = os.MkdirAll(queueDir, 0o700); err == nil {
			err = r.write(queueDir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func (r Record) write(dir string) error {
	o := conf.New()
	r.Key.SetIn(o)
	o.Set("pod", r.Pod)
	o.Set("namespace", r.Namespace)
	o.Set("socket", r.Socket)
	o.Set("since", textOf(r.Since))
	o.Set("tried", textOf(r.Tried))
	return state.Write(pathIn(dir, r.Key), append(o.JSON(), '\n'), 0o600)
}

// Remove removes what is noted of an attachment.
func Remove(k plugin.Key) error { return state.Remove(pathIn(Dir, k)) }

// RemoveDeletion removes what is noted of an attachment's deletion.
func RemoveDeletion(k plugin.Key) error {
	err := os.Remove(pathIn(queueDir, k))
	if state.IsMissing(err) { // as nearly always
		return nil
	}
	_ = os.Remove(queueDir) // if it is empty
	return err
}

// Read returns what is noted of an attachment, nil if that is nothing, or can't be read.
func Read(k plugin.Key) *Record { return recordOf(Dir, k) }

// ReadDeletion returns what is noted of an attachment's deletion, nil if that is nothing, or can't be read.
func ReadDeletion(k plugin.Key) *Record { return recordOf(queueDir, k) }

// IsSuperseded reports whether the attachment of a deletion was made anew since: the daemon must not be told to delete it.
func (r Record) IsSuperseded() bool {
	now := Read(r.Key)
	return now != nil && now.Since.After(r.Since)
}

func recordOf(dir string, k plugin.Key) *Record {
	r, err := read(pathIn(dir, k))
	if err != nil || r.Key != k {
		return nil
	}
	return &r
}

// Records returns what is noted of all attachments. Of a file that can't be of any it returns one without a key.
func Records() ([]Record, error) { return list(Dir) }

// Deletions returns those that the daemons have not been told of. Whoever sees to one holds LockDeletions, and calls RemoveDeletion then, also
// if it is superseded.
func Deletions() ([]Record, error) { return list(queueDir) }

func list(dir string) (records []Record, err error) {
	entries, err := os.ReadDir(dir)
	if state.IsMissing(err) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		r, err := read(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // meanwhile
		case err != nil:
			errs = append(errs, err)
		default:
			records = append(records, r)
		}
	}
	return records, errors.Join(errs...)
}

// read reads a file. One that is torn, or a copy, has no key.
func read(path string) (Record, error) {
	text, err := state.Read(path)
	if err != nil {
		return Record{}, err
	}
	r := Record{path: path}
	o, wrong := conf.Parse(text)
	if wrong != nil {
		return r, nil
	}
	o = o.Lenient()
	if k := plugin.KeyIn(o); filepath.Base(pathIn(Dir, k)) == filepath.Base(path) {
		r.Key = k
	}
	o.String("pod", &r.Pod)
	o.String("namespace", &r.Namespace)
	o.String("socket", &r.Socket)
	r.Since, r.Tried = timeIn(o, "since"), timeIn(o, "tried")
	return r, nil
}

func textOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func timeIn(o *conf.Object, key string) time.Time {
	text := ""
	o.String(key, &text)
	t, _ := time.Parse(time.RFC3339Nano, text) // zero if it is none
	return t
}

// Path returns where the record is kept, "" if it was not read.
func (r Record) Path() string { return r.path }

// LockDeletions keeps others from sending queued deletions. A wait of 0 is none.
func LockDeletions(ctx context.Context, wait time.Duration) (*state.Lock, error) {
	return state.LockRunWithin(ctx, "contivk8s.lock", wait)
}
