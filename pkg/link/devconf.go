package link

import (
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// routesLocalnet reads, from what the kernel tells of a link for each family,
// the IPv4 option route_localnet: a question that is asked anyway then does for
// a look at /proc/sys, which takes 20 us on a quiet node and up to 900 with 1,000
// network namespaces (see pkg/sysctl).
func routesLocalnet(families []byte) bool {
	const (
		inetConf = 1  // IFLA_INET_CONF: all options, of four bytes each
		option   = 26 // IPV4_DEVCONF_ROUTE_LOCALNET, counted from 1
	)
	options := netlink.Attr(netlink.Attr(families, unix.AF_INET), inetConf)
	return len(options) >= 4*option && number(options[4*(option-1):]) != 0
}
