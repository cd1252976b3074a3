package netlab

import (
	"strings"
	"testing"
)

// TestUseIPTables asks a plugin what iptables it has.
func TestUseIPTables(t *testing.T) {
	t.Parallel()
	for flavour, want := range map[string]string{"nft": "(nf_tables)", "legacy": "(legacy)"} {
		h := NewHost(t)
		h.InstallPlugin(t, "teller", "/bin/sh")
		h.UseIPTables(t, flavour)
		for _, family := range []string{"iptables", "ip6tables"} {
			for _, verb := range []string{"", "-save", "-restore"} {
				r := h.Exec(t, "teller", PluginCall{Config: family + verb + " --version\n"})
				if r.ExitCode != 0 || !strings.Contains(r.Stdout, want) {
					t.Errorf("%s: %s%s: %s", flavour, family, verb, r)
				}
			}
		}
	}
}
