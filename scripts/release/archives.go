package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/stub"
	"github.com/cnibox/cnibox/pkg/process/layout"
	"github.com/cnibox/cnibox/plugins"
)

// archives packs for each architecture what stands for the reference plugins' archive, in two forms, and the programs with their manual.
func archives(r Release) error {
	for _, arch := range r.Arches {
		dir := filepath.Join(r.Tree, "linux-"+arch)
		stubs, errStubs := pluginFiles(r, arch, false)
		copies, errCopies := pluginFiles(r, arch, true)
		tools, errTools := files(dir, programs...)
		about, errAbout := files(filepath.Join(r.Tree, "share/doc"), "LICENSE", "README.md", noticesFile)
		manual, errManual := files(filepath.Join(r.Tree, "share"), ".")
		units, errUnits := files(filepath.Join(r.Source, "dist"), "systemd")
		if err := cmp.Or(errStubs, errCopies, errTools, errAbout, errManual, errUnits); err != nil {
			return err
		}
		packed := map[string][]entry{
			"cni-plugins-linux-%s-%s.tgz":        slices.Concat(about, stubs),
			"cni-plugins-linux-%s-%s-copies.tgz": slices.Concat(about, copies),
			"cnibox-linux-%s-%s.tgz":             slices.Concat(tools, manual, units),
		}
		if program, err := files(dir, conformance); err == nil { // some architectures have it
			packed["cni-conformance-linux-%s-%s.tgz"] = slices.Concat(about, program)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for name, entries := range packed {
			path := r.artefact(fmt.Sprintf(name, arch, r.Version))
			if err := writeArchive(path, ".", entries, r.Time); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := writeChecksums(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry is a file in an archive, or a link to one.
type entry struct {
	name    string
	mode    int64
	content []byte
	link    string // where a symbolic link leads; "" is a file
}

// pluginFiles are cnibox and each plugin's file as `cnictl install` makes them, of cnibox itself. cnibox comes first, so that no stub is alone.
func pluginFiles(r Release, arch string, copies bool) ([]entry, error) {
	dir := filepath.Join(r.Tree, "linux-"+arch)
	cnibox, errBinary := os.ReadFile(filepath.Join(dir, "cnibox"))
	stubs, errStubs := makeStub(dir, "cnibox")
	if err := cmp.Or(errBinary, errStubs); err != nil {
		return nil, err
	}
	copied := bytes.Clone(cnibox)
	layout.Mark(copied, layout.Whole)
	list := []entry{{name: "cnibox", mode: 0o755, content: cnibox}}
	for _, name := range slices.Sorted(slices.Values(plugins.All.Names())) {
		content := stubs
		if copies || name == layout.WholePlugin {
			content = copied
		}
		list = append(list, entry{name: name, mode: 0o755, content: content})
	}
	return list, nil
}

// makeStub makes a stub of a binary for the architecture of the programs in dir.
func makeStub(dir, binary string) ([]byte, error) {
	cnictl, err := os.ReadFile(filepath.Join(dir, "cnictl"))
	if err != nil {
		return nil, err
	}
	made, err := stub.Make(cnictl, stub.Programs(binary)...)
	if err != nil {
		return nil, fmt.Errorf("%s/cnictl: %w", dir, err)
	}
	return made, nil
}

// files reads the files that are named, and those in the directories that are, by their names in dir. WalkDir sorts them.
func files(dir string, names ...string) (list []entry, err error) {
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			e := entry{mode: 0o644}
			if info.Mode()&0o100 != 0 {
				e.mode = 0o755
			}
			if e.name, err = filepath.Rel(dir, path); err == nil {
				e.content, err = os.ReadFile(path)
			}
			list = append(list, e)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
