package netlab

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// stateDir is where our locks and records are; orphansDir, in it, tells of processes and not of what is on the node:
// whether orphans are reaped (pkg/orphan).
const (
	stateDir   = "/run/cnibox"
	orphansDir = stateDir + "/orphans"
)

// fileLines describes the files in the directories that a Host has for itself.
func (h *Host) fileLines() ([]string, error) {
	var lines []string
	for _, root := range append([]string{"/run"}, privateDirs...) {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone since it was listed
			}
			if err != nil {
				return err
			}
			switch path {
			case stateDir:
				return nil
			case orphansDir:
				return fs.SkipDir
			}
			line, err := fileLine(path, entry)
			if err != nil {
				return err
			}
			lines = append(lines, line)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list files: %w", err)
		}
	}
	return lines, nil
}

func fileLine(path string, entry fs.DirEntry) (string, error) {
	info, err := entry.Info()
	if err != nil {
		return "", err
	}
	line := facts("file", path, info.Mode().String())
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return line + " -> " + target, err
	case !info.Mode().IsRegular():
		return line, nil
	case isNamespace(path):
		return line + " a namespace", nil
	}
	content, err := os.ReadFile(path)
	return line + " " + describe(content), err
}

// isNamespace reports whether a namespace is mounted on the file; it can't be read then.
func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// describe shows a short text and gives the size and hash of anything else.
func describe(content []byte) string {
	const short = 160
	text := string(content)
	if len(content) <= short && utf8.Valid(content) && !strings.ContainsFunc(text, isBinary) {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%d bytes, sha256 %x", len(content), sha256.Sum256(content))
}

func isBinary(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }

// mountLines describes the mounts of the calling thread's mount namespace.
func (h *Host) mountLines() ([]string, error) {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var lines []string
	for row := range strings.Lines(string(table)) {
		// id parent device root mountpoint options [optional …] - type source superoptions
		mount, device, _ := strings.Cut(strings.TrimSpace(row), " - ")
		left, right := strings.Fields(mount), strings.Fields(device)
		lines = append(lines, facts("mount", left[4]+":", right[0], "of", right[1], "root", left[3], left[5]))
	}
	return lines, nil
}
