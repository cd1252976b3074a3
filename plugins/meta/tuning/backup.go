package tuning

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// backup is the file that holds, from ADD to DEL, the attributes that an
// interface had. Its name and form are the reference plugin's, whose DEL can
// read ours and the other way round.
type backup struct {
	path string
}

// The endings of the file's name, and of the one it has while it is written.
const (
	backupSuffix    = ".json"
	temporarySuffix = backupSuffix + ".tmp"
)

func newBackup(dir string, k plugin.Key) backup {
	return backup{filepath.Join(dir, backupStem(k.ContainerID, k.IfName)+backupSuffix)}
}

// backupStem is the file's name without its ending. It does not tell the
// network.
func backupStem(containerID, ifName string) string { return containerID + "_" + ifName }

// record writes down attributes, those left out that are written down already:
// these an earlier ADD found before it changed them. It returns what takes the
// change of the file back.
func (b backup) record(previous attributes) (undo func() error, err error) {
	old, err := os.ReadFile(b.path)
	existed := err == nil
	if err != nil && !isNoFile(err) {
		return nil, b.failure(err)
	}
	if recorded, ok := parseBackup(old); ok {
		previous.override(recorded)
	}
	if err := b.write(formatBackup(previous)); err != nil {
		return nil, b.failure(err)
	}
	return func() error {
		if existed {
			return b.write(old)
		}
		return b.remove()
	}, nil
}

// write puts a file with the text in place in one step. It need not outlive a
// crash of the machine: the interface does not.
func (b backup) write(text []byte) error {
	// Under a name of its own for each attachment, so that what a killed call
	// leaves is found by the next one and by DEL.
	temporary := b.temporary()
	err := os.WriteFile(temporary, text, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(b.path), 0o700); err != nil {
			return err
		}
		err = os.WriteFile(temporary, text, 0o600)
	}
	if err == nil {
		err = os.Rename(temporary, b.path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}

func (b backup) temporary() string {
	return b.path[:len(b.path)-len(backupSuffix)] + temporarySuffix
}

// read returns what is recorded. A file that is torn holds nothing.
func (b backup) read() (recorded attributes, found bool, err error) {
	text, err := os.ReadFile(b.path)
	if isNoFile(err) {
		return attributes{}, false, nil
	}
	if err != nil {
		return attributes{}, false, b.failure(err)
	}
	recorded, _ = parseBackup(text)
	return recorded, true, nil
}

// remove removes the file, if it is there.
func (b backup) remove() error {
	for _, path := range []string{b.temporary(), b.path} {
		if err := os.Remove(path); err != nil && !isNoFile(err) {
			return b.failure(err)
		}
	}
	return nil
}

func (b backup) failure(err error) error {
	return &types.Error{
		Code: types.ErrIOFailure, Msg: "file of previous attributes: " + err.Error(),
		Details: "the directory, \"dataDir\" in the configuration, must be one that root can write to, and not full",
	}
}

// isNoFile tells whether err says that there is no such file, or can't be one.
func isNoFile(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// formatBackup returns the file's text: the recorded attributes only, each on
// a line indented by one space.
func formatBackup(a attributes) []byte {
	var b bytes.Buffer
	b.WriteString("{")
	for i, one := range a.list() {
		if i > 0 {
			b.WriteString(",")
		}
		value := one.value
		if one.name == "mac" {
			value = strconv.Quote(value)
		}
		b.WriteString("\n \"" + one.name + "\": " + value)
	}
	b.WriteString("\n}")
	return b.Bytes()
}

// parseBackup reads the file's text. What is in it that can't be set on a link
// is left out; ok is false when nothing can be read.
func parseBackup(text []byte) (a attributes, ok bool) {
	o, err := conf.Parse(text)
	if err != nil {
		return a, false
	}
	o = o.Lenient()
	a.mac = readMAC(o)
	o.OptionalBool("promisc", &a.promisc)
	o.OptionalInt("mtu", &a.mtu)
	o.OptionalBool("allmulti", &a.allmulti)
	o.OptionalInt("txQLen", &a.txQLen)
	if a.mtu != nil && (*a.mtu <= 0 || *a.mtu > math.MaxInt32) {
		a.mtu = nil
	}
	if a.txQLen != nil && (*a.txQLen < 0 || *a.txQLen > math.MaxInt32) {
		a.txQLen = nil
	}
	return a, true
}

// isBackup tells whether a file with the text is a backup, be it one whose
// writing was cut off, and not somebody else's in a directory that is shared.
func isBackup(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	o, err := conf.Parse(text)
	if err != nil {
		return false
	}
	known := []string{"mac", "promisc", "mtu", "allmulti", "txQLen"}
	return !slices.ContainsFunc(o.Keys(), func(key string) bool { return !slices.Contains(known, key) })
}
