package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// setAside are endings of files that somebody has put aside.
var setAside = []string{"~", ".bak", ".backup", ".broken", ".disabled", ".dpkg-dist", ".dpkg-new", ".dpkg-old", ".example", ".off", ".old", ".orig",
	".rpmnew", ".rpmorig", ".rpmsave", ".sample", ".save", ".swp", ".template", ".tmp", ".unused"}

// mostBytes bounds what is read of a file in a directory: networks are small.
const mostBytes = 1 << 20

// Read reads a file, or the files of a directory that are networks or look like some, in the order of their names.
func Read(path string) (list []Input, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		return []Input{{Name: path, Text: text}}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		aside := strings.HasPrefix(e.Name(), ".") || slices.ContainsFunc(setAside, func(end string) bool { return strings.HasSuffix(e.Name(), end) })
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || aside || !isRead(name) && info.Size() > mostBytes {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		in := Input{Name: name, Text: text, InDir: true}
		if isRead(name) || slices.ContainsFunc(read(in, Options{}), (*file).looksLikeNetwork) {
			list = append(list, in)
		}
	}
	return list, nil
}

// looksLikeNetwork reports whether a file has what no other JSON file has.
func (f *file) looksLikeNetwork() bool {
	if f.definition != nil {
		return true
	}
	if f.top == nil || f.top.member("name") == nil {
		return false
	}
	plugins := f.top.get("plugins")
	return plugins != nil && plugins.kind == '[' || f.top.member("cniVersion") != nil && f.top.member("type") != nil
}
