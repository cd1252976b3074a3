package install

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/process/layout"
	"github.com/cnibox/cnibox/pkg/state"
)

const (
	manifestFile  = pluginfile.Manifest
	lockFile      = ".cnibox-lock" // root's alone: anybody can lock what anybody can read
	replacedDir   = ".cnibox-replaced"
	stagingPrefix = ".cnibox-staging-"
)

// directory is the directory of plugins, opened and locked.
type directory struct {
	path string // without symbolic links
	file *os.File
	lock *state.Lock
}

// open opens the directory, keeps other installers of cnibox out of it, and removes what a killed one has left.
func open(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, fmt.Errorf("find the directory of plugins: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of plugins: %w", err)
	}
	d := &directory{path: path, file: file}
	if err := d.checkKinds(); err != nil {
		file.Close()
		return nil, err
	}
	// Where nothing can be locked (some NFS) we go on without.
	d.lock, err = state.Acquire(context.Background(), d.join(lockFile), 0o600, 0)
	if busy := (*types.Error)(nil); errors.As(err, &busy) {
		file.Close()
		return nil, fmt.Errorf("another cnictl is at work in %s (%s); try again when it is done", path, busy.Msg)
	}
	if err == nil {
		stale, _ := fs.Glob(os.DirFS(path), stagingPrefix+"*")
		for _, name := range stale {
			_ = os.RemoveAll(d.join(name))
		}
	}
	return d, nil
}

// checkKinds refuses what has a name of ours and is of another kind: a pipe would be waited for, and a link would lead out of the directory.
func (d *directory) checkKinds() error {
	for name, kind := range map[string]fs.FileMode{lockFile: 0, manifestFile: 0, replacedDir: fs.ModeDir} {
		if info, err := os.Lstat(d.join(name)); err == nil && info.Mode().Type() != kind {
			return fmt.Errorf("%s is %s, and install keeps its own there; move it away", d.join(name), info.Mode())
		}
	}
	return nil
}

// close lets others in. The file that it locks is removed while it is locked, so nobody waits for a file that is gone.
func (d *directory) close() {
	if d.lock != nil {
		_ = os.Remove(d.join(lockFile))
	}
	d.lock.Release()
	_ = d.file.Close()
}

// noExec reports whether the directory is known to be mounted so that nothing in it can be executed.
func (d *directory) noExec() bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(d.file.Fd()), &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}

func (d *directory) join(elements ...string) string {
	return filepath.Join(append([]string{d.path}, elements...)...)
}

// foreign says, without running it, what somebody else's file at a name is; "" if there is ours or none. An error is why the
// name can't be replaced.
func (d *directory) foreign(name string) (string, error) {
	path := d.join(name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		// Older versions, and packages, have made links to cnibox. The first one of an old installation may lead nowhere any more.
		if f := pluginfile.Identify(path); f != nil && f.Origin == pluginfile.Ours || f == nil && target == binaryOf(name) {
			return "", nil
		}
		return "a symbolic link to " + target, nil
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("it is not a file (%s)", info.Mode())
	}
	f := pluginfile.Identify(path)
	if f == nil || f.Origin == pluginfile.Ours { // nil: it was removed just now
		return "", nil
	}
	return f.String(), nil
}

// isDamaged reports whether a file is no program any more, whoever made it: it is empty, cut short, or a link that leads nowhere.
func (d *directory) isDamaged(name string) bool {
	path := d.join(name)
	info, err := os.Stat(path)
	if err != nil {
		link, err := os.Lstat(path)
		return err == nil && link.Mode().Type() == fs.ModeSymlink
	}
	if !info.Mode().IsRegular() {
		return false
	}
	if info.Size() == 0 {
		return true
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, elf.EI_NIDENT)
	n, _ := file.ReadAt(head, 0)
	if n < len(head) || string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return false // a script, perhaps
	}
	if layout.KindOf(head) != layout.Other {
		return true // it says that it is a file of cnibox, and Identify did not know it: it is not whole
	}
	_, err = elf.NewFile(file)
	return err != nil
}

// backUp gives the file of somebody else that is about to be replaced a second name.
func (d *directory) backUp(name string) error {
	if err := os.Mkdir(d.join(replacedDir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	path, backup := d.join(name), d.join(replacedDir, name)
	if err := os.Remove(backup); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(path, backup) == nil {
		return nil
	}
	return os.Rename(path, backup) // no hard links on this filesystem: the name is missing for a moment
}

// manifest is the file of the names that install has made. Whether what is there is still ours is seen from the files.
type manifest struct {
	Names []string `json:"names"` // sorted, without cnibox itself
}

// readManifest returns no names if there is no manifest.
func (d *directory) readManifest() ([]string, error) {
	path := d.join(manifestFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m manifest
	err = json.Unmarshal(text, &m)
	if err == nil {
		err = checkNames(m.Names)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; remove it, and install again", path, err)
	}
	return m.Names, nil
}

// checkNames refuses names that are not plain file names of plugins.
func checkNames(names []string) error {
	if len(names) == 0 {
		return errors.New("there is no plugin to install")
	}
	for _, name := range names {
		if name == "" || isBinary(name) || strings.HasPrefix(name, ".") || strings.ContainsRune(name, '/') {
			return fmt.Errorf("%q is no name for a plugin", name)
		}
	}
	return nil
}
