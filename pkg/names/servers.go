package names

import (
	"net/netip"
	"os"
	"slices"

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

// Versions identify the files that Servers reads: if they are the same as before, so are the servers.
func Versions() (list [2]os.FileInfo) {
	for i, path := range files {
		list[i], _ = os.Stat(path)
	}
	return list
}

// SameVersions reports whether no file has changed from one time to the next.
func SameVersions(a, b [2]os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime())) {
			return false
		}
	}
	return true
}
