package state

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RunDir returns the directory of what means nothing after a reboot: locks, and notes about rules and devices. It is /run/cnibox, or cnibox
// in the caller's own $XDG_RUNTIME_DIR where that can't be written (rootless). It is "" where neither can be written.
func RunDir() string {
	const ofRoot = "/run/cnibox"
	if access(ofRoot) == nil {
		return ofRoot
	}
	own := os.Getenv("XDG_RUNTIME_DIR")
	ofUser := filepath.Join(own, "cnibox")
	if filepath.IsAbs(own) && isOwn(own) && access(ofUser) == nil {
		return ofUser
	}
	return ""
}

// RunFile returns the path of a file in RunDir, "" if there is no such directory: ReadRecords finds nothing there then, and WriteRecords
// writes nothing.
func RunFile(name string) string {
	dir := RunDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// access reports whether files can be made in a directory, or in what there is of the way to it, unless it is full.
func access(dir string) error {
	for {
		err := unix.Access(dir+"/.", unix.W_OK)
		if !errors.Is(err, unix.ENOENT) || dir == "/" {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

// isOwn reports whether a directory is the user's, and nobody else can write there.
func isOwn(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}
