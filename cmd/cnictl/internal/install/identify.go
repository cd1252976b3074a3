package install

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// mainPackage is what the Go linker writes into every cnibox, of whatever
// version: the import path of its main package.
const mainPackage = "github.com/cnibox/cnibox/cmd/cnibox"

// kind is whose file a name is.
type kind int

const (
	absent   kind = iota
	ours          // cnibox, or a link to it
	foreign       // can be replaced, if the user says so
	unusable      // can't be replaced
)

// finding is what is at a name.
type finding struct {
	kind kind
	what string // of a foreign file: what it is
	err  error  // of an unusable one: why
}

// identify tells whose file a name is, without running it.
func (d *directory) identify(name string) finding {
	path := d.join(name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return finding{kind: absent}
	case err != nil:
		return finding{kind: unusable, err: err}
	case info.Mode().Type() == fs.ModeSymlink:
		return d.identifyLink(name)
	case !info.Mode().IsRegular():
		return finding{kind: unusable, err: fmt.Errorf("it is not a file (%s)", info.Mode())}
	}
	build := goMain(path)
	switch build {
	case mainPackage:
		return finding{kind: ours}
	case "":
		return finding{kind: foreign, what: "a file of unknown origin"}
	}
	return finding{kind: foreign, what: build}
}

// identifyLink looks at where a symbolic link leads. Only one to the cnibox
// beside it is ours; and cnibox itself is a file.
func (d *directory) identifyLink(name string) finding {
	target, err := os.Readlink(d.join(name))
	if err != nil {
		return finding{kind: unusable, err: err}
	}
	resolved := target
	if !filepath.IsAbs(target) {
		resolved = d.join(target)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(resolved))
	if err == nil && parent == d.path && filepath.Base(resolved) == Binary && name != Binary {
		return finding{kind: ours}
	}
	return finding{kind: foreign, what: "a symbolic link to " + target}
}

// goMain returns the import path of the main package a Go program was built
// from, "" for other files.
func goMain(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	return info.Path
}

// requireCnibox makes sure that a file is cnibox.
func requireCnibox(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("find the cnibox to install: %w; name it with --from FILE", err)
	}
	if main := goMain(path); !info.Mode().IsRegular() || main != mainPackage {
		return fmt.Errorf("%s is not a cnibox binary (main package %q, want %q); name one with --from FILE", path, main, mainPackage)
	}
	return nil
}
