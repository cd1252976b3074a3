// Package lease keeps which attachment holds which address, in the files of the reference plugin host-local: its processes and ours work on
// one directory at the same time.
//
// The directory <dataDir>/<network> holds, for each lease, a file named by the address (mode 0600) with "<container id>\r\n<interface>" in
// it, no newline at the end (old releases wrote the container id alone). last_reserved_ip.<N> is the address handed out last from the Nth
// range set, and whoever reads or writes any of it holds a flock on the file lock.
//
// These files are the truth. The index beside them, in <dataDir>/.cnibox, can be removed at any time.
package lease

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Lease is an address held by an attachment. Owner.IfName is empty for a lease in the old form, which belongs to the container whatever the
// interface. A torn file has no Owner.
type Lease struct {
	Address netip.Addr
	Owner   plugin.Key
}

func (l Lease) isTorn() bool { return l.Owner.ContainerID == "" }

// Name returns an attachment as people read it.
func Name(a plugin.Key) string {
	if a.IfName == "" {
		return "container " + a.ContainerID
	}
	return fmt.Sprintf("container %s, interface %s", a.ContainerID, a.IfName)
}

// format returns the content of the file of owner's lease.
func format(owner plugin.Key) string { return owner.ContainerID + "\r\n" + owner.IfName }

// parse returns whose lease a file with that content is. A torn file is nobody's: the reference plugin leaves an empty one when it is
// killed, a power failure an empty one or zeros. A bare LF, left by an editor, counts as CRLF.
func parse(network, content string) (owner plugin.Key, torn bool) {
	text := strings.TrimSpace(content)
	if text == "" || strings.ContainsRune(text, 0) {
		return owner, true
	}
	id, ifName, _ := strings.Cut(text, "\n")
	return plugin.Key{Network: network, ContainerID: strings.TrimSpace(id), IfName: strings.TrimSpace(ifName)}, false
}

// parseName returns the address a file is the lease of. Only the canonical text of an address names a lease.
func parseName(name string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(name)
	return a, err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == name
}
