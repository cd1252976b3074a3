// Package pluginfile says what the files of plugins are: who made them, and which version they have.
package pluginfile

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Origin is who made a program.
type Origin string

// The origins.
const (
	Ours      Origin = "cnibox"
	Reference Origin = "the reference plugins"
	Other     Origin = "" // somebody, or it can't be told
)

// Main is the main package that the Go linker writes into every cnibox, of whatever version.
const Main = "github.com/cnibox/cnibox/cmd/cnibox"

// MainEtcd is the same of the plugin etcd, which is a program of its own.
const MainEtcd = Main + "-etcd"

// File is a file of a plugin, or what a link leads to.
type File struct {
	Path   string
	Info   os.FileInfo
	Origin Origin
	Build  string // the path of a Go program's main package, "" if it is none
}

// Identify says what a file is, without running it. It is nil if there is none, as for a link that leads nowhere.
func Identify(path string) *File {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f := &File{Path: path, Info: info}
	if build, err := buildinfo.ReadFile(path); err == nil {
		f.Build = build.Path
	}
	switch {
	case f.Build == Main, f.Build == MainEtcd:
		f.Origin = Ours
	case strings.Contains(f.Build, "containernetworking/plugins"), strings.Contains(f.Build, "rancher/plugins"), strings.Contains(f.Build, "k3s-io/plugins"),
		strings.Contains(f.Build, "flannel-io/cni-plugin"):
		f.Origin = Reference
	}
	return f
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

// Sum returns a hash of the content, "" if it can't be read.
func (f *File) Sum() string {
	file, err := os.Open(f.Path)
	if err != nil {
		return ""
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return ""
	}
	return string(h.Sum(nil))
}

// Version has the plugin say its version, such as "v1.9.1+cnibox.0.1.0", if it is one of those whose programs are known.
func (f *File) Version(ctx context.Context) string {
	if f.Origin == Other || !f.IsExecutable() {
		return ""
	}
	const longest = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.Path)
	cmd.Env = []string{} // without CNI_COMMAND a plugin says what it is
	text, _ := cmd.CombinedOutput()
	line, _, _ := strings.Cut(string(text), "\n") // CNI bridge plugin v1.9.1
	_, version, _ := strings.Cut(line, " plugin ")
	return version
}
