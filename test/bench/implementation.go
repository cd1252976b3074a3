package bench

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

var chosen = flag.String("plugins", "reference,debian,cnibox,chain,no-ops,no-op", "the implementations to measure, separated by commas")

// implementation is a set of plugins.
type implementation struct {
	name string
	// chain has all plugins of a network in one entry.
	chain bool
	// badCheck is set where CHECK fails although all is well, and so is not measured.
	badCheck bool
	// install puts the plugins with these names into a Host.
	install func(t testing.TB, host *netlab.Host, p programs, names ...string)
}

var implementations = []implementation{
	{name: report.Reference, install: func(t testing.TB, host *netlab.Host, _ programs, names ...string) {
		host.InstallFrom(t, netlab.Reference(t), names...)
	}},
	// portmap 1.1.1 misses IPv6 rules of attachments that have no IPv6 address.
	{name: report.Debian, badCheck: true, install: func(t testing.TB, host *netlab.Host, _ programs, names ...string) {
		host.InstallFrom(t, netlab.Debian(t), names...)
	}},
	{name: report.Cnibox, install: installCnibox},
	{name: report.Chain, chain: true, install: installCnibox},
	{name: report.NoOps, install: installNoOps},
	{name: report.NoOp, chain: true, install: installNoOps},
}

// pluginNames are those that every implementation but the chains has.
var pluginNames = []string{"bridge", "host-local", "static", "loopback", "tuning", "portmap"}

func installCnibox(t testing.TB, host *netlab.Host, _ programs, names ...string) {
	host.InstallPlugins(t, names...)
}

func installNoOps(t testing.TB, host *netlab.Host, p programs, names ...string) {
	for _, name := range names {
		host.InstallPlugin(t, name, p.noop)
	}
}

// choose returns the chosen implementations, of those that are named.
func choose(names ...string) []implementation {
	var picked []implementation
	for _, i := range implementations {
		if slices.Contains(names, i.name) && slices.Contains(strings.Split(*chosen, ","), i.name) {
			picked = append(picked, i)
		}
	}
	return picked
}

// newHost makes a Host with the implementation's plugins.
func (i implementation) newHost(t testing.TB, p programs) *netlab.Host {
	t.Helper()
	host := netlab.NewHost(t)
	i.install(t, host, p, pluginNames...)
	if i.chain {
		i.install(t, host, p, "chain")
	}
	return host
}
