package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestConfigurations reads where runtimes look for networks and plugins, from one file or two.
func TestConfigurations(t *testing.T) {
	for _, tt := range []struct {
		runtime string
		files   []string
		want    string
	}{
		{"containerd", nil, "[/opt/cni/bin] false"},
		{"containerd", []string{""}, "[/opt/cni/bin] true"},
		{"containerd", []string{"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = \"/x/net.d\"\n"}, "/x/net.d[/usr/lib/cni] true"},
		{"containerd", []string{"version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".cni]\nbin_dirs = [\"/a\", \"/b\"]\n"}, "[/a /b] true"},
		{"CRI-O", []string{"[crio.network]\nnetwork_dir = \"/x\"\nplugin_dirs = [\"/a\"]\n", "[crio.network]\nplugin_dirs = [\"/b\", \"/c\"]\n"}, "/x[/b /c] true"},
		{"podman", []string{"[network]\ncni_plugin_dirs = [\"/a\"]\n"}, "[/a] false"},
		{"podman", []string{"[network]\nnetwork_backend = \"netavark\"\n"}, "[/usr/local/libexec/cni /usr/libexec/cni /usr/local/lib/cni /usr/lib/cni /opt/cni/bin] false"},
		{"podman", []string{"[network]\ncni_plugin_dirs = [\"/a\"]\nnetwork_config_dir = \"/x\"\n", "[network]\nnetwork_backend = \"cni\"\n"}, "/x[/a] true"},
		{"nerdctl", []string{"cni_path = \"/a\"\ncni_netconfpath = \"/x\"\n"}, "/x[/a] true"},
		{"nerdctl", []string{"cni_path = "}, "an error"},
	} {
		dir := t.TempDir()
		c := configurations[slices.IndexFunc(configurations, func(c configuration) bool { return c.name == tt.runtime })]
		c.files = []string{dir + "/*.toml", "/nowhere"}
		for i, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".toml")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, configured, err := c.read()
		got := fmt.Sprint(r.confDir, r.binDirs, configured)
		if err != nil {
			got = "an error"
		}
		if got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.runtime, tt.files, got, tt.want)
		}
	}
}

func TestConfigIn(t *testing.T) {
	for line, want := range map[string]string{
		"containerd": "", "containerd --config /a": "/a", "containerd --config=/a": "/a", "crio -c /a --log-level info": "/a", "containerd -config": "", "containerd --configs /a": "",
	} {
		if got := configIn(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
