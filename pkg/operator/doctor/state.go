package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/state"
)

var (
	stateFull = codes.Declare(finding.Code{Name: "state-full", Severity: finding.Error,
		Meaning: "ADD fails, since nothing can be written down.",
		Remedy:  "free some space"})
	stateReadOnly = codes.Declare(finding.Code{Name: "state-read-only", Severity: finding.Error,
		Meaning: "ADD fails, since nothing can be written down, and DEL can't give addresses back.",
		Remedy:  "`mount -o remount,rw MOUNT`"})
)

// checkState looks whether plugins and libcni can write down what they have to.
func checkState(_ context.Context, s *subject) (list []Finding, err error) {
	seen := map[string]bool{}
	dirs := []string{s.cacheDir()}
	if run := state.RunDir(); run != "" { // plugins do without one that can't be written
		dirs = append(dirs, run)
	}
	for _, dir := range dirs {
		for _, err := os.Stat(dir); err != nil && dir != "/"; _, err = os.Stat(dir) {
			dir = filepath.Dir(dir) // in which it will be made
		}
		at := s.mountOf(dir)
		if seen[at] {
			continue
		}
		seen[at] = true
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return list, err
		}
		switch {
		case fs.Flags&unix.ST_RDONLY != 0:
			list = append(list, found(stateReadOnly, "", finding.Run("mount", "-o", "remount,rw", at), "%s is mounted read-only, and %s is on it", at, dir))
		case fs.Bavail == 0 && fs.Blocks > 0:
			list = append(list, found(stateFull, "", finding.Say("free some space: du -xah %s | sort -h | tail", finding.Quote(at)), "%s is full, and %s is on it", at, dir))
		case fs.Ffree == 0 && fs.Files > 0:
			list = append(list, found(stateFull, "", finding.Say("remove some files: du -x --inodes %s | sort -n | tail", finding.Quote(at)),
				"%s can't have more files, and %s is on it", at, dir))
		}
	}
	return list, nil
}

// mountOf returns where the filesystem is mounted that a directory is on, the directory itself if that can't be told.
func (s *subject) mountOf(dir string) string {
	mounts, err := s.Mounts()
	if err != nil {
		return dir
	}
	at := "/"
	for _, m := range mounts {
		if len(m.Mountpoint) >= len(at) && (dir == m.Mountpoint || strings.HasPrefix(dir, strings.TrimSuffix(m.Mountpoint, "/")+"/")) {
			at = m.Mountpoint
		}
	}
	return at
}
