package hostlocal

import (
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// readResolvConf reads a file in the form of resolv.conf(5). Unlike the
// resolver, which takes the last line of a kind, it collects search domains and
// options over all lines, as the reference plugin does.
func readResolvConf(path string) (types.DNS, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return types.DNS{}, plugin.ConfigError("correct the path, or remove the key", "key %q: %v", "ipam.resolvConf", err)
	}
	return parseResolvConf(string(data)), nil
}

func parseResolvConf(text string) types.DNS {
	var d types.DNS
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || strings.HasPrefix(f[0], "#") || strings.HasPrefix(f[0], ";") {
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
