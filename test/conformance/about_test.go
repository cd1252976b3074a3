package conformance

import (
	"fmt"
	"strings"

	"github.com/containernetworking/plugins/pkg/testutils"

	"github.com/cnibox/cnibox/test/netlab"
)

// aboutPlugin is what the group of a plugin has of the rows of the contract, where not every collection has the plugin.
func aboutPlugin(name, config string) []row {
	return append(needsCapabilities(config), knowsVersions("VERSION", name, testutils.AllSpecVersions[:]))
}

// knowsVersions is the row that VERSION of a plugin names these; its own name begins with what is given.
func knowsVersions(begin, plugin string, versions []string) row {
	return row{name: begin + " names the versions from " + versions[0] + " to 1.1.0", test: func(l *lab) {
		r := l.host.Exec(l, plugin, netlab.PluginCall{Command: "VERSION"})
		l.printed(r.Stdout, fmt.Sprintf(`{"cniVersion":"1.1.0","supportedVersions":%s}`, text(versions)))
	}}
}

// needsCapabilities are the rows that STATUS of a configuration says which capability is missing that its ADD would need.
func needsCapabilities(config string) []row {
	return []row{needsCapability("STATUS", config, "net_admin"), needsCapability("STATUS", config, "sys_admin")}
}

// needsCapability is one of them; its name begins with what is given.
func needsCapability(begin, config, capability string) row {
	name := "CAP_" + strings.ToUpper(capability)
	return row{name: begin + " has code 50 without " + name, differs: noStatus, test: func(l *lab) {
		l.code(l.unable(capability, "STATUS", nil, with(config, "cniVersion", `"1.1.0"`)), 50, name)
	}}
}

// unable calls a verb of a plugin that lacks a capability.
func (l *lab) unable(capability, verb string, c *container, config string) error {
	r, _ := l.under("setpriv --bounding-set=-"+capability+" --inh-caps=-"+capability, verb, c, config)
	return failure(r)
}

// noPrevious is the row that ADD of a plugin that makes the interface leaves out what another made before it.
func noPrevious(config func(l *lab) string) row {
	return row{name: "a previous result is left out of the result", test: func(l *lab) {
		const before = `{"cniVersion":"1.0.0","interfaces":[{"name":"wg0"}]}`
		l.lacks(l.answer("ADD", l.pod("web"), with(config(l), "capabilities", "{}", "prevResult", before)), "wg0")
	}}
}
