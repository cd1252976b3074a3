package bench

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

var chosen = flag.String("plugins", "reference,debian,cnibox,chain,no-ops,no-op,netavark", "the implementations to measure, separated by commas")

// implementation is a set of plugins.
type implementation struct {
	name string
	// chain has all plugins of a network in one entry.
	chain bool
	// badCheck is set where CHECK fails although all is well, and so is not measured.
	badCheck bool
	// program returns the path of the plugin with that name.
	program func(t testing.TB, p programs, name string) string
	// operates makes a call if libcni does not.
	operates func(s *subject, run starter, verb string, rt *libcni.RuntimeConf) error
}

var implementations = []implementation{
	{name: report.Reference, program: func(t testing.TB, _ programs, name string) string {
		return filepath.Join(netlab.Reference(t), name)
	}},
	// portmap 1.1.1 misses IPv6 rules of attachments that have no IPv6 address.
	{name: report.Debian, badCheck: true, program: func(t testing.TB, _ programs, name string) string {
		return filepath.Join(netlab.Debian(t), name)
	}},
	{name: report.Cnibox, program: cnibox},
	{name: report.Chain, chain: true, program: cnibox},
	{name: report.NoOps, program: noop},
	{name: report.NoOp, chain: true, program: noop},
}

func cnibox(t testing.TB, _ programs, _ string) string { return netlab.Cnibox(t) }

func noop(_ testing.TB, p programs, _ string) string { return p.noop }

// choose returns the chosen implementations, of those that are named.
func choose(names ...string) (picked []implementation) {
	for _, i := range implementations {
		if slices.Contains(names, i.name) && slices.Contains(strings.Split(*chosen, ","), i.name) {
			picked = append(picked, i)
		}
	}
	return picked
}

// pluginNames are those that every implementation but the chains has.
var pluginNames = []string{"bridge", "host-local", "static", "loopback", "tuning", "portmap"}

// install puts the plugins with these names into a Host, and the chain if the implementation has one.
func (i implementation) install(t testing.TB, host *netlab.Host, p programs, names ...string) {
	t.Helper()
	if i.chain {
		names = append(slices.Clone(names), "chain")
	}
	for _, name := range names {
		host.InstallPlugin(t, name, p.installed(t, i.program(t, p, name)))
	}
}
