package result

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// ParseResolvConf reads the form of resolv.conf(5). It collects search domains and options over all lines, as the reference plugins do; the
// C library takes the last line of a kind.
func ParseResolvConf(text string) types.DNS {
	var d types.DNS
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			d.Nameservers = append(d.Nameservers, f[1])
		case "domain":
			d.Domain = f[1]
		case "search":
			d.Search = append(d.Search, f[1:]...)
		case "options":
			d.Options = append(d.Options, f[1:]...)
		}
	}
	return d
}
