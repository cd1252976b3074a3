package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source packs the files of the commit with all modules that the programs and their tests are built of, so that it can be built where there is no
// network. With it goes what the programs don't make themselves: manual pages, completion, and licence texts.
func source(r Release) error {
	vendor, err := os.MkdirTemp("", "cnibox-vendor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(vendor)
	if said, err := exec.Command("go", "-C", r.Source, "mod", "vendor", "-o", filepath.Join(vendor, "vendor")).CombinedOutput(); err != nil {
		return fmt.Errorf("go mod vendor: %w\n%s", err, said)
	}
	tracked, err := exec.Command("git", "-C", r.Source, "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	list, errTracked := files(r.Source, strings.Split(strings.TrimSuffix(string(tracked), "\x00"), "\x00")...)
	modules, errModules := files(vendor, "vendor")
	made, errMade := files(r.Tree, "share")
	if err := cmp.Or(errTracked, errModules, errMade); err != nil {
		return err
	}
	list = append(append(list, modules...), made...)
	path := r.artefact("cnibox-" + r.Version + "-vendor.tar.gz")
	return cmp.Or(writeArchive(path, "cnibox-"+r.Version[1:], list, r.Time), writeChecksums(path))
}
