// Package pluginfile says what the files of plugins are: who made them, and which version they have.
package pluginfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/stub"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/pkg/process/layout"
)

// Origin is who made a program.
type Origin string

// The origins.
const (
	Ours      Origin = "cnibox"
	Reference Origin = "the reference plugins"
	Other     Origin = "" // somebody, or it can't be told
)

// The files' names of the programs that plugins' names lead to.
const (
	Binary     = "cnibox"
	EtcdBinary = "cnibox-etcd" // of the plugin etcd
)

// Main is the main package that the Go linker writes into every cnibox, of whatever version.
const Main = "github.com/cnibox/cnibox/cmd/cnibox"

// Manifest is the file in which cnictl writes down what it has installed in a directory.
const Manifest = ".cnibox.json"

// MainEtcd is the same of the plugin etcd, which is a program of its own.
const MainEtcd = Main + "-etcd"

// File is a file of a plugin, or what a link leads to.
type File struct {
	Path   string
	Info   os.FileInfo
	Origin Origin
	Build  string // the path of a Go program's main package, "" if it is none
	Kind   layout.Kind
	Runs   *File // the program that a stub runs, nil if it finds none

	version string // of a reference plugin
}

// Identify says what a file is, without running it. It is nil if there is none, as for a link that leads nowhere.
func Identify(path string) *File {
	f, head := identify(path)
	if f != nil && f.Kind == layout.Stub {
		f.Runs = runBy(path, head)
	}
	return f
}

// identify says what a file is, of which a stub's content is returned, too.
func identify(path string) (f *File, head []byte) {
	file, info := open(path)
	if file == nil {
		return nil, nil
	}
	defer file.Close()
	f = &File{Path: path, Info: info}
	head = make([]byte, stub.MostBytes)
	n, _ := file.ReadAt(head, 0)
	head = head[:n]
	if f.Kind = layout.KindOf(head); f.Kind == layout.Stub {
		f.Origin = Ours
		return f, head
	}
	if build, err := buildinfo.Read(file); err == nil {
		f.Build, f.version = build.Path, referenceVersion(build)
	}
	switch {
	case f.Build == Main, f.Build == MainEtcd:
		f.Origin = Ours
	case strings.Contains(f.Build, "containernetworking/plugins"), strings.Contains(f.Build, "rancher/plugins"), strings.Contains(f.Build, "k3s-io/plugins"),
		strings.Contains(f.Build, "flannel-io/cni-plugin"):
		f.Origin = Reference
	}
	return f, head
}

// runBy returns the program that a stub runs, or the first that it would run, could that be executed.
func runBy(path string, content []byte) (first *File) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	for i, name := range stub.RunBy(content) {
		f, _ := identify(filepath.Join(filepath.Dir(real), name))
		if f != nil && f.Kind != layout.Stub && (i == 0 || f.Kind == layout.Whole) {
			if f.IsExecutable() {
				return f
			}
			first = cmp.Or(first, f)
		}
	}
	return first
}

// open opens a regular file. Anything else is not waited for.
func open(path string) (*os.File, os.FileInfo) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, nil
	}
	return file, info
}

// Find returns the files that a plugin's name has in some directories, of which a runtime runs the first.
func Find(dirs []string, name string) (list []*File) {
	if name != filepath.Base(name) {
		return nil
	}
	for _, dir := range dirs {
		if f := Identify(filepath.Join(dir, name)); f != nil {
			list = append(list, f)
		}
	}
	return list
}

// prefixes are those that programs put before the names of all plugins: none, BuildKit's and OpenShift Virtualization's.
var prefixes = []string{"", "buildkit-cni-", "cnv-"}

// Row returns our plugin that a configuration names, nil if it is somebody else's. cnibox answers to each name that ends in a plugin's, but
// others' plugins have such names too (tc-redirect-tap): behind another prefix the first file of that name in the directories has to be cnibox.
func Row(all plugin.Table, name string, dirs []string) *plugin.Descriptor {
	row := all.Find(name)
	if row == nil || slices.Contains(prefixes, strings.TrimSuffix(name, row.Name)) {
		return row
	}
	if files := Find(dirs, name); files == nil || files[0].Origin != Ours {
		return nil
	}
	return row
}

// Rows returns Row for all names that configurations have.
func Rows(all plugin.Table, dirs []string) func(name string) *plugin.Descriptor {
	return func(name string) *plugin.Descriptor { return Row(all, name, dirs) }
}

// Has reports whether a file is a whole program of ours that has a plugin.
func (f *File) Has(name string) bool {
	main := Main
	if name == shared.Plugin {
		main = MainEtcd
	}
	return f.Build == main && f.Version() != ""
}

var referencePlugin = regexp.MustCompile(`/plugins/(?:main|ipam|meta)/([^/]+)$`)

// Plugin returns which of the reference plugins a file is, whatever its name; "" if it is none. Ours is each by its name.
func (f *File) Plugin() string {
	if m := referencePlugin.FindStringSubmatch(f.Build); m != nil && f.Origin == Reference {
		return m[1]
	}
	return ""
}

// Program returns the file that is run: for a stub another one, unless it finds none.
func (f *File) Program() *File {
	if f.Runs != nil {
		return f.Runs
	}
	return f
}

// ID is the same for files that are one, by hard or symbolic links.
func (f *File) ID() string {
	stat := f.Info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Dev, ":", stat.Ino)
}

// IsExecutable reports whether its mode lets anybody run it.
func (f *File) IsExecutable() bool { return f.Info.Mode()&0o111 != 0 }

// String says what the file is, for people.
func (f *File) String() string {
	switch {
	case f.Origin != Other:
		return string(f.Origin)
	case f.Build != "":
		return "the Go program " + f.Build
	}
	return "a file of unknown origin"
}

// Sum returns a hash of the program that is run, "" if it can't be read. A whole copy has that of cnibox.
func (f *File) Sum() string {
	if f.Runs != nil {
		return f.Runs.Sum()
	}
	file, _ := open(f.Path)
	if file == nil {
		return ""
	}
	defer file.Close()
	h := sha256.New()
	head := make([]byte, elf.EI_NIDENT)
	n, _ := io.ReadFull(file, head)
	if f.Kind == layout.Whole {
		layout.Mark(head, layout.Other)
	}
	h.Write(head[:n])
	if _, err := io.Copy(h, file); err != nil {
		return ""
	}
	return string(h.Sum(nil))
}

// mostBytes is how large a cnibox may be.
const mostBytes = 256 << 20

// Version returns the plugin's version, such as "v1.9.1+cnibox.0.1.0", "" if it is not in the file. Nothing is run to learn it.
func (f *File) Version() string {
	if f.Origin != Ours {
		return f.version
	}
	if f.Kind == layout.Stub {
		if f.Runs == nil {
			return ""
		}
		return f.Runs.Version()
	}
	file, info := open(f.Path)
	if file == nil || info.Size() > mostBytes {
		return ""
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, mostBytes))
	_, rest, _ := bytes.Cut(text, []byte(box.Says)) // cnibox has the line that it says about itself in one piece
	version, _, _ := bytes.Cut(rest[:min(len(rest), 64)], []byte("\n"))
	return string(version)
}

var setVersion = regexp.MustCompile(`\bBuildVersion=(v[\w.+-]+)`)

// referenceVersion returns the version of a reference plugin: its module's, or the one that its makers gave to the linker.
func referenceVersion(build *buildinfo.BuildInfo) string {
	for _, s := range build.Settings {
		if m := setVersion.FindStringSubmatch(s.Value); s.Key == "-ldflags" && m != nil {
			return m[1]
		}
	}
	for _, m := range append([]*debug.Module{&build.Main}, build.Deps...) {
		if m.Path == "github.com/containernetworking/plugins" && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return ""
}
