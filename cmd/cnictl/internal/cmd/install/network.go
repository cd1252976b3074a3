package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// networkStaging is what the name of a network's file begins with while it is written. It has no suffix that a runtime looks for.
const networkStaging = ".cnibox-network-"

// network is a network's file that is installed after the plugins: where it is, a runtime attaches containers.
type network struct {
	path    string // where it belongs
	content []byte
}

// readNetworks reads a network's file, or all of a directory, in which there may be none.
func readNetworks(from, dir string) (list []*network, err error) {
	files := []string{from}
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(from, "*.conflist")) // fails for a wrong pattern only
	}
	for _, file := range files {
		n, err := readNetwork(file, dir)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// readNetwork reads the network to install, and refuses what no runtime could read.
func readNetwork(from, dir string) (*network, error) {
	content, err := os.ReadFile(from)
	if err != nil {
		return nil, fmt.Errorf("read the network: %w", err)
	}
	if filepath.Ext(from) != ".conflist" {
		return nil, fmt.Errorf("the network %s: its name has to end in .conflist, or runtimes do not read it as a list of plugins", from)
	}
	if _, err := libcni.NetworkConfFromBytes(content); err != nil {
		return nil, fmt.Errorf("the network %s is not one (nothing was changed): %w; cnictl lint says what is wrong with it", from, err)
	}
	return &network{filepath.Join(dir, filepath.Base(from)), content}, nil
}

func (n *network) isInstalled() bool {
	content, err := os.ReadFile(n.path)
	return err == nil && bytes.Equal(content, n.content)
}

// install puts the file in its place, whole, unless it is there. It also removes what a killed installation has left.
func (n *network) install() error {
	dir := filepath.Dir(n.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of networks: %w", err)
	}
	stale, _ := fs.Glob(os.DirFS(dir), networkStaging+"*")
	for _, name := range stale {
		_ = os.Remove(filepath.Join(dir, name))
	}
	if n.isInstalled() {
		return nil
	}
	staged := filepath.Join(dir, networkStaging+strings.TrimSuffix(filepath.Base(n.path), ".conflist"))
	err := writeFile(staged, n.content, 0o644)
	if err == nil {
		err = os.Rename(staged, n.path)
	}
	if err != nil {
		_ = os.Remove(staged)
		return fmt.Errorf("install the network %s (the plugins are installed): %w", n.path, err)
	}
	return syncDirectory(dir)
}

// uninstall removes the file if it is the one that was installed, and reports whether it has.
func (n *network) uninstall() (isRemoved bool, err error) {
	if _, err := os.Lstat(n.path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if !n.isInstalled() {
		return false, fmt.Errorf("%s is not what was installed (nothing was changed): remove it, or leave out --network", n.path)
	}
	if err := os.Remove(n.path); err != nil {
		return false, fmt.Errorf("remove the network: %w", err)
	}
	return true, syncDirectory(filepath.Dir(n.path))
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
