package bugreport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/known"
)

// readConfigurations reads the files of networks.
func (s *source) readConfigurations(ctx context.Context, out *output) {
	s.readDocuments(ctx, out, s.ConfDir, func(name string, text []byte) ([]byte, bool) {
		return text, slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) && s.isAbout(text)
	})
	for _, path := range otherFiles() {
		if text, err := state.Read(path); err == nil {
			out.add("files"+path, text)
		} else if !errors.Is(err, fs.ErrNotExist) {
			out.fail(path, err)
		}
	}
}

// otherFiles say what other programs have given this node, and whether ufw is on.
func otherFiles() (files []string) {
	for _, row := range known.Plugins {
		if s := row.Facts(nil).Subnets; s != nil {
			files = append(files, s.Path)
		}
	}
	return append(files, "/etc/ufw/ufw.conf")
}

// isAbout reports whether a configuration may be of the network that is asked for.
func (s *source) isAbout(text []byte) bool {
	var config struct{ Name string }
	return s.Network == "" || json.Unmarshal(text, &config) != nil || config.Name == s.Network
}

// readResults reads libcni's caches, with the configurations that are in the results.
func (s *source) readResults(ctx context.Context, out *output) {
	for _, dir := range distinct(node.CacheDirs, s.CacheDirs) {
		s.readDocuments(ctx, out, filepath.Join(dir, "results"), func(name string, text []byte) ([]byte, bool) {
			return withConfiguration(text), s.Network == "" || strings.HasPrefix(name, s.Network+"-")
		})
	}
}

// readDocuments reads the JSON files of a directory that are wanted, in the form in which they are.
func (s *source) readDocuments(ctx context.Context, out *output, dir string, wanted func(name string, text []byte) ([]byte, bool)) {
	entries, err := os.ReadDir(dir)
	if err != nil && (dir == s.ConfDir || !errors.Is(err, fs.ErrNotExist)) {
		out.fail(dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if ctx.Err() != nil {
			return
		}
		text, err := state.Read(path)
		text, isWanted := wanted(e.Name(), text)
		switch {
		case !isWanted:
			continue
		case err != nil:
			out.fail(path, err)
			continue
		}
		clean, err := s.secrets.document(text)
		if err != nil {
			out.fail(path, fmt.Errorf("it is no JSON, its values are left out: %w", err))
		}
		out.add("files"+path, clean)
	}
}

// distinct returns directories, each once.
func distinct(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// withConfiguration returns a result with its configuration as JSON, which is base64 in the file. One that can't be read so is left out.
func withConfiguration(text []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return text
	}
	for key := range fields {
		if !strings.EqualFold(key, "config") {
			continue
		}
		var config []byte
		if err := json.Unmarshal(fields[key], &config); err != nil || !json.Valid(config) {
			config = []byte(`"` + leftOut + `"`)
		}
		fields[key] = config
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return []byte("{}")
	}
	return text
}

// directories are those whose files are listed, with what is below them.
var directories = []string{"/run/netns", "/var/run/netns", "/run/cni", "/var/lib/cni", "/var/lib/cnibox", "/var/log/cnibox"}

// mostEntries of a directory are listed.
const mostEntries = 3000

// listDirectories lists the files of networks, plugins and their state: what there is, and since when.
func (s *source) listDirectories(ctx context.Context, out *output) {
	var list strings.Builder
	for _, dir := range distinct([]string{s.ConfDir, state.RunDir()}, s.BinDirs, directories, s.CacheDirs) {
		count := 0
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if count++; count > mostEntries || ctx.Err() != nil {
				fmt.Fprintf(&list, "%s has more\n", dir)
				return fs.SkipAll
			}
			info, err := e.Info()
			if err != nil {
				return nil // it is gone by now
			}
			target, _ := os.Readlink(path)
			fmt.Fprintf(&list, "%s %10d %s %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format("2006-01-02T15:04:05.000Z"), path, target)
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			out.fail(dir, err)
		}
	}
	out.add("directories.txt", []byte(list.String()))
}
