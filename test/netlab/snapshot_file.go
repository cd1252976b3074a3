package netlab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// stateDirs are where our locks and records are, and in there what we know of processes (pkg/link), which is nothing on
// the node; and where notes of namespaces are (pkg/presence).
var stateDirs = []string{"/run/cnibox", "/run/cnibox/orphans", "/var/lib/cni/cnibox"}

// fileLines describes the files in the directories that a Host has for itself.
func fileLines() (lines []string, err error) {
	for _, root := range append([]string{"/run"}, privateDirs...) {
		err = errors.Join(err, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !slices.Contains(stateDirs, path) && filepath.Dir(path) != stateDirs[1] {
				var line string
				if line, err = fileLine(path, entry); err == nil {
					lines = append(lines, line)
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone since it was listed
			}
			return err
		}))
	}
	return lines, err
}

// fileLine shows the content of a file if it is short, or else its size and hash.
func fileLine(path string, entry fs.DirEntry) (string, error) {
	info, err := entry.Info()
	if err != nil {
		return "", err
	}
	mode := info.Mode()
	if filepath.Dir(path) == stateDirs[2] {
		mode &^= fs.ModeSticky // with that, the attachment's DEL has begun
	}
	line := fmt.Sprintf("file %s %s", path, mode)
	switch {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return line + " -> " + target, err
	case !mode.IsRegular():
		return line, nil
	case isNamespace(path):
		return line + " a namespace", nil
	}
	content, err := os.ReadFile(path)
	if len(content) > 160 {
		return fmt.Sprintf("%s %d bytes, sha256 %x", line, len(content), sha256.Sum256(content)), err
	}
	return fmt.Sprintf("%s %q", line, content), err
}

// isNamespace reports whether a namespace is mounted on the file; it can't be read then.
func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// mountLines describes the mounts of the calling thread's mount namespace.
func mountLines() ([]string, error) {
	table, err := proc.ReadFile("thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var lines []string
	for row := range strings.Lines(string(table)) {
		// id parent device root mountpoint options [optional …] - type source superoptions
		mount, device, _ := strings.Cut(strings.TrimSpace(row), " - ")
		left, right := strings.Fields(mount), strings.Fields(device)
		if left[4] == "/run/netns" { // what ip(8) makes with the first namespace that has a name, and never removes
			continue
		}
		lines = append(lines, fmt.Sprintf("mount %s: %s of %s root %s %s", left[4], right[0], right[1], left[3], left[5]))
	}
	return lines, nil
}
