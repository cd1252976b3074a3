package netlab

import (
	"strings"
	"testing"
)

// TestReferencePlugins asks the reference plugins of both kinds for the versions they know.
func TestReferencePlugins(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"reference": Reference(t), "debian": Debian(t)} {
		h := NewHost(t)
		h.InstallFrom(t, dir, "bridge", "portmap", "firewall", "host-local")
		h.InstallFrom(t, dir, "bridge") // again
		for _, plugin := range []string{"bridge", "portmap", "firewall", "host-local"} {
			r := h.Exec(t, plugin, PluginCall{Command: "VERSION", Config: `{"cniVersion":"1.0.0"}`})
			if r.ExitCode != 0 || !strings.Contains(r.Stdout, `"0.4.0"`) {
				t.Errorf("%s %s: %s", name, plugin, r)
			}
		}
	}
}
