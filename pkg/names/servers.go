package names

import (
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
)

// files say which DNS servers a node asks. The second is systemd-resolved's, for a node whose first leads to that alone.
var files = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Servers returns the node's DNS servers. Of a node that asks a program of its own they are those which systemd-resolved asks; else the
// program's address is returned.
func Servers() (list []netip.Addr) {
	for _, path := range files {
		if text, err := state.Read(path); err == nil {
			own := serversIn(string(text))
			if slices.ContainsFunc(own, IsElsewhere) {
				return own
			}
			list = append(list, own...)
		}
	}
	return list
}

// IsElsewhere reports whether a server can be asked from a container, too: one at 127.0.0.53 can't, nor can one that is named with a link of the
// node's.
func IsElsewhere(server netip.Addr) bool { return !server.IsLoopback() && server.Zone() == "" }

func serversIn(text string) (list []netip.Addr) {
	for _, server := range result.ParseResolvConf(text).Nameservers {
		a, err := netip.ParseAddr(server)
		if a = a.Unmap(); err == nil && !a.IsUnspecified() && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// Version identifies the files that Servers reads: if it is the same as before, so are the servers.
type Version struct {
	files []os.FileInfo
	at    time.Time
}

// tick is longer than what the kernel's clock for files stands still: a file that is read so soon after a change may change once more and have the same time.
const tick = 20 * time.Millisecond

// CurrentVersion returns the version of now.
func CurrentVersion() Version { return versionOf(files...) }

func versionOf(paths ...string) Version {
	v := Version{at: time.Now()}
	for _, path := range paths {
		file, _ := os.Stat(path)
		v.files = append(v.files, file)
	}
	return v
}

// Is reports whether no file has changed since an earlier version.
func (v Version) Is(earlier Version) bool {
	return slices.EqualFunc(v.files, earlier.files, func(now, before os.FileInfo) bool {
		if now == nil || before == nil {
			return now == nil && before == nil
		}
		return os.SameFile(now, before) && now.Size() == before.Size() && now.ModTime().Equal(before.ModTime()) && earlier.at.Sub(before.ModTime()) > tick
	})
}
