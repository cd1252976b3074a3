package conformance

import (
	"fmt"
	"strings"

	"github.com/containernetworking/plugins/pkg/testutils"

	"github.com/cnibox/cnibox/test/netlab"
)

// aboutPlugin is what the group of a plugin has of the rows of the contract, where not every collection has the plugin.
func aboutPlugin(name, config string) []row {
	rows := []row{{name: "VERSION names the versions from 0.1.0 to 1.1.0", test: func(l *lab) {
		r := l.host.Exec(l, name, netlab.PluginCall{Command: "VERSION"})
		l.printed(r.Stdout, fmt.Sprintf(`{"cniVersion":"1.1.0","supportedVersions":%s}`, text(testutils.AllSpecVersions)))
	}}}
	for _, capability := range []string{"net_admin", "sys_admin"} {
		rows = append(rows, row{name: "STATUS has code 50 without CAP_" + strings.ToUpper(capability), differs: noStatus, test: func(l *lab) {
			r, _ := l.under("setpriv --bounding-set=-"+capability+" --inh-caps=-"+capability, "STATUS", nil, with(config, "cniVersion", `"1.1.0"`))
			l.code(failure(r), 50)
			l.refused(failure(r), "CAP_"+strings.ToUpper(capability))
		}})
	}
	return rows
}
