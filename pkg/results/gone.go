package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Gone reports whether the network namespace of an attachment is known to be gone, though no DEL has come for it, as after a crash of the
// runtime. known says, for people, what is known instead.
func Gone(dir string, key plugin.Key) (gone bool, known string) {
	path, err := netnsOf(dir, key)
	if err != nil {
		return false, "it is not known whether it runs: " + err.Error()
	}
	ns, err := netns.Open(path)
	switch {
	case errors.Is(err, netns.ErrNotExist):
		return true, ""
	case err != nil:
		return false, "it is not known whether it runs: " + err.Error()
	}
	_ = ns.Close()
	return false, "its network namespace " + path + " is there, so that it seems to be running"
}

// Lost reports whether libcni's results say that an attachment is gone: there is none of it, or its network namespace is gone. Where no
// results are kept they say nothing.
func Lost(dir string, key plugin.Key) bool {
	if _, err := os.Lstat(filepath.Join(dir, fileOf(key))); errors.Is(err, fs.ErrNotExist) {
		return Kept(dir)
	}
	gone, _ := Gone(dir, key)
	return gone
}

// Kept reports whether there is a directory of libcni's results.
func Kept(dir string) bool {
	d, err := os.Stat(dir)
	return err == nil && d.IsDir()
}

func netnsOf(dir string, key plugin.Key) (string, error) {
	name := fileOf(key)
	f, err := read(dir, name)
	if err != nil {
		return "", err
	}
	switch {
	case f("networkName") != key.Network || f("containerId") != key.ContainerID || f("ifName") != key.IfName:
		return "", plugin.Errorf("", "%s is about another attachment", name)
	case f("netns") == "":
		return "", plugin.Errorf("", "%s names no network namespace", name)
	}
	return f("netns"), nil
}
