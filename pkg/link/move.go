package link

import (
	"strings"
	"unicode"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Move moves a link of the calling thread's namespace into another one, where it gets a name and an alias, all in one step. It is
// down then. If the name is taken there the link may have been moved and not renamed.
func Move(index int, to ns.NetNS, name, alias string) error {
	return change(index, 0, []nl.NetlinkRequestData{
		nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.Fd()))),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)),
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias)),
	})
}

// IsName reports whether a link can have a name.
func IsName(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/:%") && !strings.ContainsFunc(name, unicode.IsSpace)
}
