package operator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cnibox/cnibox/pkg/lint"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestLintNode compares a file with a node: with cnibox's and the reference's plugins, with links, and with routes.
func TestLintNode(t *testing.T) {
	t.Parallel()
	host := netlab.NewHost(t)
	o := &operator{t, host}
	host.InstallPlugins(t, "bridge", "host-local")
	reference := filepath.Join(o.TempDir(), "reference")
	if err := os.Mkdir(reference, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bridge", "host-local"} {
		if err := os.Link(filepath.Join(netlab.Reference(t), name), filepath.Join(reference, name)); err != nil {
			t.Fatal(err)
		}
	}
	host.MustRun(t, "ip", "link", "add", "far0", "mtu", "1400", "type", "bridge")
	host.MustRun(t, "ip", "link", "set", "far0", "up")
	host.MustRun(t, "ip", "route", "add", "10.9.0.0/16", "dev", "far0")
	for _, c := range []struct {
		plugin, dir string
		want        []string
	}{
		{`{"type": "bridge", "acceptRA": false, "ipam": {"type": "host-local", "subnet": "10.8.0.0/24"}}`, "", []string{"only-cnibox"}},
		{`{"type": "bridge", "acceptRA": false, "ipam": {"type": "host-local", "subnet": "10.8.0.0/24"}}`, reference, []string{"only-cnibox", "plugin-older"}},
		{`{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.9.7.0/24"}}`, "", []string{"route-overlap"}},
		{`{"type": "macvlan", "master": "far0", "mtu": 1500}`, "", []string{"mtu-above-master", "plugin-not-installed"}},
		{`{"type": "macvlan", "master": "far1"}`, "", []string{"master-missing", "plugin-not-installed"}},
	} {
		file := filepath.Join(o.TempDir(), "10-new.conflist")
		if err := os.WriteFile(file, []byte(`{"cniVersion": "1.0.0", "name": "new", "plugins": [`+c.plugin+`]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"lint", "--node", "--json", file}
		if c.dir != "" {
			args = append(args, "--bin-dir", c.dir)
		}
		_, printed := o.cnictl(args...)
		var report struct{ Findings []lint.Finding }
		if err := json.Unmarshal([]byte(printed), &report); err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		var got []string
		for _, f := range report.Findings {
			got = append(got, f.Code)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q\n%s", c.plugin, got, c.want, printed)
		}
	}
}

// TestLintNames: a plugin is ours by its name behind the prefixes of BuildKit and OpenShift, and by any name whose file is cnibox. Others' plugins
// have names that end alike.
func TestLintNames(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.MustRun(t, "sh", "-ec", installForeign+"; ln -s bridge /opt/cni/bin/my-bridge")
	for _, c := range []struct{ plugin, code string }{
		{"vpc-bridge", "unknown-plugin"}, {"win-bridge", "unknown-plugin"}, {"cni-nftables-portmap", "unknown-plugin"}, {"tc-redirect-tap", "unknown-plugin"},
		{"my-bridge", "unknown-key"}, {"buildkit-cni-bridge", "unknown-key"}, {"cnv-bridge", "unknown-key"},
	} {
		o.host.Feed(t, `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "`+c.plugin+`", "other": 1}]}`, "sh", "-c", "cat >/run/10-net.conflist")
		_, printed := o.cnictl("lint", "--node", "--json", "/run/10-net.conflist")
		var report struct{ Findings []lint.Finding }
		if err := json.Unmarshal([]byte(printed), &report); err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		if !slices.ContainsFunc(report.Findings, func(f lint.Finding) bool { return f.Code == c.code }) {
			t.Errorf("%s: no %s in %s", c.plugin, c.code, printed)
		}
	}
}
