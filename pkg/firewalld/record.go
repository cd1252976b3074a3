package firewalld

import (
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// firewalld does not say whose a source is. So there are two kinds of files, in
// a directory that goes when the host goes down, as the sources do:
//
//	attachments/ID      which addresses an attachment was given
//	addresses/ADDRESS   whose an address is now
//
// Both are written before a source is added and removed after it is. That the address is another one's by now, as when a
// lease was freed and given away again before DEL, is seen in the second.
const (
	stateDir       = "/run/cnibox/firewalld"
	attachmentsDir = stateDir + "/attachments"
	addressesDir   = stateDir + "/addresses"
	lockFile       = stateDir + "/lock"
)

// lockPatience bounds the wait for others that change sources.
const lockPatience = 30 * time.Second

// record is the content of either file. That of an address has no addresses.
type record struct {
	attachment string // plugin.Key.String
	zone       string
	addresses  []netip.Addr
}

func (r record) String() string {
	var b strings.Builder
	b.WriteString("attachment: " + r.attachment + "\nzone: " + r.zone + "\n")
	if len(r.addresses) > 0 {
		b.WriteString("addresses:")
		for _, a := range r.addresses {
			b.WriteString(" " + a.String())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// parseRecord reads a file's text.
func parseRecord(text string) (r record, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "attachment":
			r.attachment = value
		case "zone":
			r.zone = value
		case "addresses":
			for s := range strings.FieldsSeq(value) {
				a, err := netip.ParseAddr(s)
				if err != nil || a.Zone() != "" {
					return record{}, false
				}
				r.addresses = append(r.addresses, a)
			}
		}
	}
	return r, r.attachment != "" && r.zone != ""
}

// readRecord returns what is in a file; found is false if there is no such file
// or if it makes no sense.
func readRecord(path string) (r record, found bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	r, found = parseRecord(string(text))
	return r, found, nil
}

func (r record) write(path string) error { return state.Write(path, []byte(r.String()), 0o600) }

func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// attachment is whose sources are added or removed.
type attachment struct {
	id  plugin.ID
	key string
}

func attachmentOf(key plugin.Key) attachment {
	return attachment{id: key.ID("forward"), key: key.String()}
}

func (a attachment) path() string {
	return filepath.Join(attachmentsDir, hex.EncodeToString(a.id[:]))
}

// record returns what the attachment was given.
func (a attachment) record() (r record, found bool, err error) {
	r, found, err = readRecord(a.path())
	return r, found && r.attachment == a.key, err
}

func addressPath(a netip.Addr) string { return filepath.Join(addressesDir, a.String()) }

// attachmentsOf lists the attachments of a network that have a file.
func attachmentsOf(network string) (list []attachment, err error) {
	entries, err := os.ReadDir(attachmentsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hash := plugin.NetworkHash(network)
	for _, e := range entries {
		id, err := hex.DecodeString(e.Name())
		if err != nil || len(id) != len(plugin.ID{}) || !slices.Equal(id[:len(hash)], hash[:]) {
			continue
		}
		r, found, err := readRecord(filepath.Join(attachmentsDir, e.Name()))
		if err != nil {
			return nil, err
		}
		if found {
			list = append(list, attachment{id: plugin.ID(id), key: r.attachment})
		}
	}
	return list, nil
}

// lock excludes other processes that add and remove sources.
func lock(ctx context.Context) (*state.Lock, error) {
	for _, dir := range []string{attachmentsDir, addressesDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return state.Acquire(ctx, lockFile, 0o600, lockPatience)
}
