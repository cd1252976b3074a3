package tuning

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// backup is what a file has, from ADD to DEL, of the interface before. Its name and form are the reference plugin's, whose DEL can read
// ours and the other way round, and passes over the key.
type backup struct {
	values values
	key    plugin.Key // not in a file of the reference plugin
}

// backupPath is that of the file.
type backupPath string

const suffix, temporarySuffix = ".json", ".tmp"

func backupFile(r *plugin.Request) backupPath {
	return pathOf(dataDir(r.Config), backupStem(r.ContainerID, r.IfName))
}

func pathOf(dir, stem string) backupPath { return backupPath(filepath.Join(dir, stem+suffix)) }

// backupStem is the file's name without its ending.
func backupStem(containerID, ifName string) string { return containerID + "_" + ifName }

// temporary is the path of the file while it is written: the same for each call, so that what a killed one leaves is found again.
func (p backupPath) temporary() string { return string(p) + temporarySuffix }

// record writes down values, those left out that are written down already: these an earlier ADD found before it changed them. It returns
// what takes the change of the file back.
func (p backupPath) record(b backup) (undo func() error, err error) {
	old, found, err := p.read()
	if err != nil {
		return nil, err
	}
	recorded, _ := parseBackup(old)
	b.values.override(recorded.values)
	if err := p.write(b.text()); err != nil {
		return nil, fileError(err)
	}
	return func() error {
		if found {
			return p.write(old)
		}
		return p.remove()
	}, nil
}

// write puts a file with the text in place in one step. It need not outlive a crash of the machine: the interface does not.
func (p backupPath) write(text []byte) error {
	err := os.MkdirAll(filepath.Dir(string(p)), 0o700)
	if err == nil {
		err = os.WriteFile(p.temporary(), text, 0o600)
	}
	if err == nil {
		err = os.Rename(p.temporary(), string(p))
	}
	if err != nil {
		_ = os.Remove(p.temporary())
	}
	return err
}

// read returns the file's text.
func (p backupPath) read() (text []byte, found bool, err error) {
	text, err = state.Read(string(p))
	switch {
	case state.IsMissing(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fileError(err)
	}
	return text, true, nil
}

// remove removes the file, if it is there.
func (p backupPath) remove() error {
	for _, path := range []string{p.temporary(), string(p)} {
		if err := state.Remove(path); err != nil {
			return fileError(err)
		}
	}
	return nil
}

func fileError(err error) error {
	return plugin.CodeErrorf(types.ErrIOFailure, "the directory, \"dataDir\" in the configuration, must be one that root can write to, and not full",
		"file of previous attributes: %w", err)
}

// text returns the file's text: what is recorded only, each on a line indented by one space.
func (b backup) text() []byte {
	var lines [][]byte
	add := func(name, value string) { lines = append(lines, []byte("\n "+strconv.Quote(name)+": "+value)) }
	for i, name := range names {
		switch {
		case b.values[i] == "":
		case i == mac:
			add(name, strconv.Quote(b.values[i]))
		default:
			add(name, b.values[i])
		}
	}
	if b.key != (plugin.Key{}) {
		key := conf.New()
		b.key.SetIn(key)
		for _, name := range key.Keys() {
			if value, ok := bytes.CutPrefix(key.Only(name).JSON(), []byte(`{"`+name+`":`)); ok {
				add(name, string(bytes.TrimSuffix(value, []byte("}"))))
			}
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(lines, []byte(",")), []byte("\n}"))
}

// parseBackup reads the file's text. A value that can't be set on a link is left out. isBackup is false when it has keys that no
// backup has: in a directory that is shared it is somebody else's. An empty file is one whose writing was cut off, and a torn one holds
// nothing.
func parseBackup(text []byte) (b backup, isBackup bool) {
	o, err := conf.Parse(text)
	if err != nil {
		return b, len(text) == 0
	}
	o = o.Lenient()
	b.values = readValues(o)
	if b.values[mtu] == "0" {
		b.values[mtu] = ""
	}
	b.key = plugin.KeyIn(o)
	known := append(names[:], "network", "containerID", "ifname")
	return b, !slices.ContainsFunc(o.Keys(), func(key string) bool { return !slices.Contains(known, key) })
}

// backups are the backups in a directory.
type backups string

// Held lists the backups. That of the reference plugin does not say its network.
func (dir backups) Held(_ context.Context, _ string) (list []plugin.Held, err error) {
	entries, err := os.ReadDir(string(dir))
	if state.IsMissing(err) {
		return nil, nil
	}
	for _, e := range entries {
		stem, ok := strings.CutSuffix(strings.TrimSuffix(e.Name(), temporarySuffix), suffix)
		if !ok || !e.Type().IsRegular() {
			continue
		}
		if h, ok := pathOf(string(dir), stem).describe(stem); ok {
			list = append(list, h)
		}
	}
	return list, err
}

// describe describes a file, or the one that is written first.
func (p backupPath) describe(stem string) (h plugin.Held, ok bool) {
	text, err := state.Read(string(p))
	if state.IsMissing(err) {
		text, err = state.Read(p.temporary())
	}
	b, isBackup := parseBackup(text)
	h = plugin.Held{Key: b.key, What: "previous attributes in " + string(p), Own: stem}
	if h.Key.ContainerID == "" {
		h.MayBe = cache.Containers(stem, "_")
		if len(h.MayBe) == 1 {
			h.Key.ContainerID, h.Key.IfName, _ = strings.Cut(stem, "_")
		}
	}
	return h, err == nil && isBackup && (h.Key.ContainerID != "" || h.MayBe != nil)
}

// Release removes backups.
func (dir backups) Release(_ context.Context, list []plugin.Held) error {
	var errs []error
	for _, h := range list {
		stem := h.Own.(string)
		file := pathOf(string(dir), stem)
		if now, ok := file.describe(stem); ok && now.Key == h.Key {
			errs = append(errs, file.remove())
		}
	}
	return errors.Join(errs...)
}
