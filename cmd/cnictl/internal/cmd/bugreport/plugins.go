package bugreport

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// program is a file in a directory of plugins. It is read, and not run.
type program struct {
	File     string            `json:"file"`
	Target   string            `json:"target,omitempty"` // of a link
	Bytes    int64             `json:"bytes"`
	Mode     string            `json:"mode"`
	Modified time.Time         `json:"modified"`
	SHA256   string            `json:"sha256,omitempty"`
	Go       string            `json:"go,omitempty"`   // of what is written in Go
	Main     string            `json:"main,omitempty"` // its main package
	Module   string            `json:"module,omitempty"`
	Built    map[string]string `json:"built,omitempty"`
	Error    string            `json:"error,omitempty"`
}

// usualBinDirs is where distributions and runtimes have plugins.
var usualBinDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/local/libexec/cni", "/var/lib/rancher/k3s/data/cni"}

func (s *source) readPlugins(ctx context.Context, out *output) {
	list, known := []program{}, map[[2]uint64]program{}
	for _, dir := range distinct(s.BinDirs, usualBinDirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && slices.Contains(usualBinDirs, dir)) {
			out.fail(dir, err)
		}
		for _, e := range entries {
			list = append(list, readProgram(ctx, filepath.Join(dir, e.Name()), known))
		}
	}
	if own, err := os.Executable(); err == nil {
		list = append(list, readProgram(ctx, own, known))
	}
	out.addJSON("plugins.json", map[string]any{"cnictl": s.Version, "files": list})
}

// readProgram reads a file once, though many links may lead to it.
func readProgram(ctx context.Context, path string, known map[[2]uint64]program) program {
	p := program{File: path}
	p.Target, _ = os.Readlink(path)
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == nil {
		id := [2]uint64{uint64(st.Dev), st.Ino}
		is, ok := known[id]
		if !ok {
			is, err = describe(ctx, path)
			known[id] = is
		}
		is.File, is.Target = p.File, p.Target
		p = is
	}
	if err != nil {
		p.Error = err.Error()
	}
	return p
}

func describe(ctx context.Context, path string) (p program, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return p, err
	}
	p = program{Bytes: info.Size(), Mode: info.Mode().String(), Modified: info.ModTime().UTC()}
	if !info.Mode().IsRegular() {
		return p, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return p, err
	}
	defer f.Close()
	hash := sha256.New()
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(hash, f, 1<<20)
	}
	if err != io.EOF {
		return p, errors.Join(err, ctx.Err())
	}
	p.SHA256 = hex.EncodeToString(hash.Sum(nil))
	build, err := buildinfo.Read(f)
	if err != nil {
		return p, nil // it is no Go program, or says nothing of itself
	}
	p.Go, p.Main, p.Module, p.Built = build.GoVersion, build.Path, build.Main.Path+" "+build.Main.Version, map[string]string{}
	for _, setting := range build.Settings {
		p.Built[setting.Key] = setting.Value
	}
	return p, nil
}
