package doctor

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

	"golang.org/x/sys/unix"
)

// origin is who made a program.
type origin string

const (
	ours      origin = "cnibox"
	reference origin = "the reference plugins"
	other     origin = "" // somebody, or it can't be told
)

// mainPackage is what the Go linker writes into every cnibox, of whatever version.
const mainPackage = "github.com/cnibox/cnibox/cmd/cnibox"

// pluginFile is a file of a plugin, or what a link leads to.
type pluginFile struct {
	path   string
	info   os.FileInfo
	origin origin
	build  string // the path of a Go program's main package, "" if it is none
}

// identify says what a file is, without running it. It is nil if there is none, as for a link that leads nowhere.
func identify(path string) *pluginFile {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f := &pluginFile{path: path, info: info}
	if build, err := buildinfo.ReadFile(path); err == nil {
		f.build = build.Path
	}
	switch {
	case f.build == mainPackage:
		f.origin = ours
	case strings.Contains(f.build, "containernetworking/plugins"), strings.Contains(f.build, "rancher/plugins"), strings.Contains(f.build, "k3s-io/plugins"),
		strings.Contains(f.build, "flannel-io/cni-plugin"):
		f.origin = reference
	}
	return f
}

// lookUp returns the files that a plugin's name has in some directories, of which a runtime runs the first.
func lookUp(dirs []string, name string) (list []*pluginFile) {
	for _, dir := range dirs {
		if f := identify(filepath.Join(dir, name)); f != nil {
			list = append(list, f)
		}
	}
	return list
}

// id is the same for files that are one, by hard or symbolic links.
func (f *pluginFile) id() string {
	stat := f.info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Dev, ":", stat.Ino)
}

func (f *pluginFile) isExecutable() bool { return f.info.Mode()&0o111 != 0 }

// noExec returns the mount point that keeps the file from being executed, "" if there is none.
func (f *pluginFile) noExec() string {
	var fs unix.Statfs_t
	end, err := filepath.EvalSymlinks(f.path)
	if err != nil || unix.Statfs(end, &fs) != nil || fs.Flags&unix.ST_NOEXEC == 0 {
		return ""
	}
	return mountOf(end)
}

// describe says what the file is, for people.
func (f *pluginFile) describe() string {
	switch {
	case f.origin != other:
		return string(f.origin)
	case f.build != "":
		return "the Go program " + f.build
	}
	return "a file of unknown origin"
}

// sum returns a hash of the content, "" if it can't be read.
func (f *pluginFile) sum() string {
	file, err := os.Open(f.path)
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

// version has the plugin say its version, if it is one of those whose programs are known.
func (f *pluginFile) version(ctx context.Context) string {
	if f.origin == other || !f.isExecutable() {
		return ""
	}
	const longest = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.path)
	cmd.Env = []string{} // without CNI_COMMAND a plugin says what it is
	text, _ := cmd.CombinedOutput()
	line, _, _ := strings.Cut(string(text), "\n") // CNI bridge plugin v1.9.1
	_, version, _ := strings.Cut(line, " plugin ")
	return version
}
