package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// KnownGone reports whether the network namespace of an attachment is known to be gone, though no DEL has come for it, as after a crash of the
// runtime. known says, for people, what is known instead.
func KnownGone(dir string, key plugin.Key) (gone bool, known string) {
	path, _, err := netnsOf(dir, key)
	if err == nil {
		gone, err = isGone(path)
	}
	switch {
	case err != nil:
		return false, "it is not known whether it runs: " + err.Error()
	case !gone:
		known = "its network namespace " + path + " is there, so that it seems to be running"
	}
	return gone, known
}

func isGone(path string) (bool, error) {
	ns, err := netns.Open(path)
	if errors.Is(err, netns.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, ns.Close()
}

// hasHostEnd reports whether the attachment may have the host end of a veth pair. It is there as long as the namespace is that its other
// end is in, wherever that can be found by now. One that leads to the namespace at the path adding is of the attachment's new ADD.
func hasHostEnd(key plugin.Key, adding string) bool {
	for salt := range plugin.HostEnds {
		l, err := netlink.LinkByName(key.HostEnd(salt))
		if !link.IsNotFound(err) && (err != nil || !leadsTo(l, adding)) {
			return true
		}
	}
	return false
}

func leadsTo(l netlink.Link, path string) bool {
	ns, err := netns.Open(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	leads, err := link.LeadsInto(l, ns)
	return err == nil && leads
}

// KnownEnded reports whether the network namespace is known to be gone for which an attachment was given something at a time, and whether
// another one is known to be at its path by now: the file of one that is mounted has the time when it was mounted first. A result from
// before that time is that of an earlier ADD, and says nothing. adding is the path of the namespace of the ADD that asks.
func KnownEnded(dir string, key plugin.Key, given time.Time, adding string) (gone, replaced bool) {
	path, written, err := netnsOf(dir, key)
	if err != nil || given.After(written) {
		return false, false
	}
	if gone, err = isGone(path); err == nil && !gone {
		replaced = isNewer(path, written)
	}
	isLeft := (gone || replaced) && hasHostEnd(key, adding)
	return gone && !isLeft, replaced && !isLeft
}

// isNewer reports whether what is at a namespace's path was mounted after a time.
func isNewer(path string, written time.Time) bool {
	file, err := os.Lstat(path)
	return err == nil && file.Mode().IsRegular() && file.ModTime().After(written)
}

// IsReplaced is KnownEnded's replaced for who has read the result: the path that it names, and when it was written.
func IsReplaced(path string, written time.Time, key plugin.Key) bool {
	return isNewer(path, written) && !hasHostEnd(key, "")
}

// KnownLost reports whether libcni's results say that an attachment is gone: there is none of it, or its network namespace is gone. Where no
// results are kept they say nothing.
func KnownLost(dir string, key plugin.Key) bool {
	if _, err := os.Lstat(filepath.Join(dir, fileOf(key))); errors.Is(err, fs.ErrNotExist) {
		return AreKept(dir)
	}
	gone, _ := KnownGone(dir, key)
	return gone
}

// AreKept reports whether there is a directory of libcni's results.
func AreKept(dir string) bool {
	d, err := os.Stat(dir)
	return err == nil && d.IsDir()
}

// netnsOf returns the path of an attachment's network namespace, and when libcni wrote it down.
func netnsOf(dir string, key plugin.Key) (path string, written time.Time, err error) {
	name := fileOf(key)
	v, err := read(dir, name)
	if err != nil {
		return "", written, err
	}
	about := plugin.Key{Network: string(v.GetStringBytes("networkName")), ContainerID: string(v.GetStringBytes("containerId")), IfName: string(v.GetStringBytes("ifName"))}
	path = netnsIn(v, key.IfName)
	switch {
	case about != key:
		return "", written, plugin.Errorf("", "%s is about another attachment", name)
	case path == "":
		return "", written, plugin.Errorf("", "%s names no network namespace", name)
	}
	file, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return "", written, err
	}
	return path, file.ModTime(), nil
}
