package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cnibox/cnibox/plugins"
)

// isWrittenByOthers reports whether a plugin is a copy in each archive, as `cnictl install` has it: kube-flannel's `cp -f flannel` would write through a link
// into cnibox itself.
func isWrittenByOthers(name string) bool { return plugins.All.Find(name).Facts(nil).ReplacedByOthers }

// archives packs for each architecture what stands for the reference plugins' archive, in two forms, and the programs with their manual.
func archives(r Release) error {
	for _, arch := range r.Arches {
		dir := filepath.Join(r.Tree, "linux-"+arch)
		cnibox, errBinary := os.ReadFile(filepath.Join(dir, "cnibox"))
		tools, errTools := files(dir, programs...)
		about, errAbout := files(filepath.Join(r.Tree, "share/doc"), "LICENSE", "README.md", noticesFile)
		manual, errManual := files(filepath.Join(r.Tree, "share"), ".")
		units, errUnits := files(filepath.Join(r.Source, "dist"), "systemd")
		if err := cmp.Or(errBinary, errTools, errAbout, errManual, errUnits); err != nil {
			return err
		}
		packed := map[string][]entry{
			"cni-plugins-linux-%s-%s.tgz":        slices.Concat(about, names(cnibox, false)),
			"cni-plugins-linux-%s-%s-copies.tgz": slices.Concat(about, names(cnibox, true)),
			"cnibox-linux-%s-%s.tgz":             slices.Concat(tools, manual, units),
		}
		if conformance, err := files(dir, "cni-conformance"); err == nil { // some architectures have it
			packed["cni-conformance-linux-%s-%s.tgz"] = slices.Concat(about, conformance)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for name, entries := range packed {
			path := filepath.Join(r.Out, fmt.Sprintf(name, arch, r.Version))
			if err := writeArchive(path, entries, r.Time); err != nil {
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

// names are cnibox and each plugin's name, as a link to it or a copy. cnibox comes first, so that no link leads nowhere.
func names(cnibox []byte, copies bool) []entry {
	list := []entry{{name: "cnibox", mode: 0o755, content: cnibox}}
	for _, name := range slices.Sorted(slices.Values(plugins.All.Names())) {
		if copies || isWrittenByOthers(name) {
			list = append(list, entry{name: name, mode: 0o755, content: cnibox})
		} else {
			list = append(list, entry{name: name, mode: 0o777, link: "cnibox"})
		}
	}
	return list
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
