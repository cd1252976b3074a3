package bugreport

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
)

// pluginFile is a file in a directory of plugins. It is read, and not run.
type pluginFile struct {
	File     string    `json:"file"`
	Target   string    `json:"target,omitempty"` // of a link
	Runs     string    `json:"runs,omitempty"`   // of a stub
	Bytes    int64     `json:"bytes"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
	Is       string    `json:"is"`
	Version  string    `json:"version,omitempty"`
	SHA256   string    `json:"sha256,omitempty"`
	Built    string    `json:"built,omitempty"` // what a Go program says of that
}

// usualBinDirs is where distributions and runtimes have plugins.
var usualBinDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/local/libexec/cni", "/var/lib/rancher/k3s/data/cni"}

func (s *source) readPlugins(ctx context.Context, out *output) {
	list, known := []pluginFile{}, map[string]pluginFile{}
	for _, dir := range distinct(s.BinDirs, usualBinDirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && slices.Contains(usualBinDirs, dir)) {
			out.fail(dir, err)
		}
		for _, e := range entries {
			if ctx.Err() == nil {
				list = append(list, describePlugin(filepath.Join(dir, e.Name()), known))
			}
		}
	}
	out.addJSON("plugins.json", map[string]any{"cnictl": s.Version, "files": list})
}

// describePlugin reads a file once, though many links may lead to it.
func describePlugin(path string, known map[string]pluginFile) pluginFile {
	f := pluginfile.Identify(path)
	p := pluginFile{Is: "no file that could be read"}
	if f != nil {
		var isKnown bool
		if p, isKnown = known[f.ID()]; !isKnown {
			p = pluginFile{Bytes: f.Info.Size(), Mode: f.Info.Mode().String(), Modified: f.Info.ModTime().UTC(), Is: f.String()}
			if f.Runs != nil {
				p.Runs, p.Version = f.Runs.Path, describePlugin(f.Runs.Path, known).Version
			} else {
				p.Version, p.SHA256 = f.Version(), fmt.Sprintf("%x", f.Sum())
			}
			if build, err := buildinfo.ReadFile(path); err == nil {
				build.Deps = nil
				p.Built = build.String()
			}
			known[f.ID()] = p
		}
	}
	p.File = path
	p.Target, _ = os.Readlink(path)
	return p
}
