package runtimes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooted returns a directory that has files at their paths below it.
func rooted(t *testing.T, files map[string]string) Options {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Root: root}
}

const (
	containerdConfig = "/etc/containerd/config.toml"
	podmanDirs       = "[/usr/local/libexec/cni /usr/libexec/cni /usr/local/lib/cni /usr/lib/cni /opt/cni/bin]"
)

// TestFind reads where runtimes look for networks and plugins, from their configurations or by default.
func TestFind(t *testing.T) {
	for _, tt := range []struct {
		word  string
		files map[string]string
		want  string // or a part of the error
		says  string
	}{
		{"containerd", nil, "/etc/cni/net.d [/opt/cni/bin]", "by default, as there is no /etc/containerd/config.toml or"},
		{"containerd", map[string]string{containerdConfig: ""}, "/etc/cni/net.d [/opt/cni/bin]", "by " + containerdConfig},
		{"containerd", map[string]string{containerdConfig: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = \"/x/net.d/\"\n"}, "/x/net.d [/usr/lib/cni]", "by"},
		{"containerd", map[string]string{containerdConfig: "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".cni]\nbin_dirs = [\"/a\", \"/b\"]\n"}, "/etc/cni/net.d [/a /b]", "by"},
		{"containerd", map[string]string{k3s + "/agent/etc/containerd/config.toml": "[plugins.\"io.containerd.cri.v1.runtime\".cni]\nconf_dir = \"/k\"\n"}, "/etc/cni/net.d [/opt/cni/bin]", "by default"},
		{"containerd", map[string]string{containerdConfig: "version = "}, "read the configuration of containerd: " + containerdConfig, ""},
		{"crio", nil, "/etc/cni/net.d [/opt/cni/bin]", "/etc/crio/crio.conf"},
		{"crio", map[string]string{"/etc/crio/crio.conf": "[crio.network]\nnetwork_dir = \"/x\"\nplugin_dirs = [\"/a\"]\n", "/etc/crio/crio.conf.d/10": "[crio.network]\nplugin_dirs = [\"/b\", \"/c\"]\n"},
			"/x [/b /c]", "by /etc/crio/crio.conf, /etc/crio/crio.conf.d/10"},
		{"podman", nil, "/etc/cni/net.d " + podmanDirs, `nothing there says network_backend = "cni"`},
		{"podman", map[string]string{"/usr/share/containers/containers.conf": "[network]\ncni_plugin_dirs = [\"/a\"]\nnetwork_config_dir = \"/x\"\n", "/etc/containers/containers.conf": "[network]\nnetwork_backend = \"cni\"\n"}, "/x [/a]", "by"},
		{"podman", map[string]string{"/etc/containers/containers.conf": "[network]\nnetwork_backend = \"netavark\"\n"}, `/etc/containers/containers.conf has network_backend = "netavark"; set it to "cni"`, ""},
		{"nomad", nil, "/opt/cni/config [/opt/cni/bin]", "by default, as there is no /etc/nomad.d"},
		{"nomad", map[string]string{"/etc/nomad.d/client.hcl": "data_dir = \"/opt/nomad\"\nclient {\n  enabled = true\n  options { \"driver.raw_exec.enable\" = \"1\" }\n  cni_path = \"/a:/b\" # both\n}\n",
			"/etc/nomad.d/z.json": `{"client": {"cni_config_dir": "/x"}}`, "/etc/nomad.d/README": "no HCL {"}, "/x [/a /b]", "by /etc/nomad.d/client.hcl, /etc/nomad.d/z.json"},
		{"nomad", map[string]string{"/etc/nomad.d/client.hcl": "client {"}, "read the configuration of Nomad: /etc/nomad.d/client.hcl: ", ""},
		{"k3s", nil, k3s + "/agent/etc/cni/net.d [" + k3s + "/data/cni " + k3s + "/data/current/bin]", k3s + "/agent/etc/containerd/config.toml"},
		{"k3s", map[string]string{containerdConfig: "version = ", k3s + "/agent/etc/containerd/config.toml": "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"" + k3s + "/data/4f/bin\"\nconf_dir = \"/k\"\n"},
			"/k [" + k3s + "/data/4f/bin]", "by"},
		{"nerdctl", map[string]string{"/etc/nerdctl/nerdctl.toml": "cni_path = \"/a\"\ncni_netconfpath = \"/x\"\n"}, "/x [/a]", "by"},
		{"docker", nil, `there is no runtime "docker": it is one of containerd, crio, podman, nomad, k3s, nerdctl`, ""},
	} {
		r, err := Find(tt.word, rooted(t, tt.files))
		got := fmt.Sprint(r.ConfDir, " ", r.BinDirs)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s %q: %v, want %s", tt.word, tt.files, err, tt.want)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.word, tt.files, got, tt.want)
		}
		if says := r.Says(); !strings.Contains(says, tt.says) {
			t.Errorf("%s %q: %q, want %q", tt.word, tt.files, says, tt.says)
		}
	}
}

// TestFindRunning reads the file that a daemon was started with. That of k3s's containerd is k3s's.
func TestFindRunning(t *testing.T) {
	const ofK3s = "/data/agent/etc/containerd/config.toml"
	conf := func(dir string) string {
		return "[plugins.'io.containerd.grpc.v1.cri'.cni]\nconf_dir = '" + dir + "'\n"
	}
	o := rooted(t, map[string]string{containerdConfig: conf("/usual"), "/own.toml": conf("/own"), ofK3s: conf("/k3s"), "/wait": "read line\n"})
	for _, file := range []string{"/own.toml", ofK3s} {
		cmd := exec.Command("sh")
		cmd.Args = []string{"containerd", o.Root + "/wait", "--config", file}
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Wait()
		})
		o.Processes = append(o.Processes, Process{cmd.Process.Pid, "containerd"})
	}
	for word, want := range map[string]string{"containerd": "/own", "k3s": "/k3s"} {
		if r, err := Find(word, o); err != nil || r.ConfDir != want {
			t.Errorf("%s: %s, %v; want %s", word, r.ConfDir, err, want)
		}
	}
	o.Processes = o.Processes[1:]
	if r, err := Find("containerd", o); err != nil || r.ConfDir != "/usual" {
		t.Errorf("containerd beside k3s: %s, %v", r.ConfDir, err)
	}
}

// TestHere lists the runtimes that are configured to work with CNI.
func TestHere(t *testing.T) {
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{nil, "[]"},
		{map[string]string{containerdConfig: "", "/etc/nomad.d/a.hcl": ""}, "[containerd /conf Nomad /opt/cni/config]"},
		{map[string]string{k3s + "/agent/etc/containerd/config.toml": "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"/k\"\n"}, "[containerd /k]"},
		{map[string]string{"/etc/containers/containers.conf": "[network]\ncni_plugin_dirs = [\"/a\"]\n"}, "[]"},
		{map[string]string{"/etc/containers/containers.conf": "[network]\nnetwork_backend = \"cni\"\n"}, "[podman /conf]"},
	} {
		o := rooted(t, tt.files)
		o.ConfDir = "/conf"
		list, err := Here(o)
		if err != nil {
			t.Error(err)
		}
		got := []string{}
		for _, r := range list {
			got = append(got, r.Name, r.ConfDir)
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%q: %s, want %s", tt.files, got, tt.want)
		}
	}
	if _, err := Here(rooted(t, map[string]string{"/etc/nerdctl/nerdctl.toml": "cni_path = "})); err == nil {
		t.Error("a broken file is no error")
	}
}

func TestBinDir(t *testing.T) {
	dir := t.TempDir()
	there, has := dir+"/there", dir+"/has"
	for _, d := range []string{there, has} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(has+"/cnibox", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for want, dirs := range map[string][]string{
		has:            {dir + "/not", there, has},
		there:          {dir + "/not", there},
		dir + "/not":   {dir + "/not", dir + "/neither"},
		"/opt/cni/bin": nil,
	} {
		if got := BinDir(dirs); got != want {
			t.Errorf("%s: %s, want %s", dirs, got, want)
		}
	}
}

func TestConfigFilesIn(t *testing.T) {
	for line, want := range map[string][]string{
		"containerd": nil, "containerd --config /a": {"/a"}, "containerd --config=/a": {"/a"}, "crio -c /a --log-level info": {"/a"}, "containerd -config": nil,
		"containerd --configs /a": nil, "nomad agent -config /a -config=/b": {"/a", "/b"},
	} {
		if got := configFilesIn(strings.Fields(line)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestCNIVersion asks programs that only print a version.
func TestCNIVersion(t *testing.T) {
	for _, tt := range []struct {
		word, format, program, prints string
		want                          string
	}{
		{"containerd", "", "containerd", "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1", "1.0.0"},
		{"containerd", "", "containerd", "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7", "1.1.0"},
		{"containerd", "version = 3\n", "", "", "1.1.0"},
		{"containerd", "version = 2\n", "", "", "1.0.0"},
		{"crio", "", "crio", "crio version 1.28.1\nGitCommit: 2.0", "1.0.0"},
		{"crio", "", "crio", "crio version 1.33.0", "1.1.0"},
		{"podman", "", "podman", "podman version 5.4.2", "1.0.0"},
		{"nomad", "", "nomad", "Nomad v1.10.2", "1.1.0"},
		{"nomad", "", "nomad", "Nomad v1.9.7", "1.0.0"},
		{"k3s", "", "k3s", "k3s version v1.33.1+k3s1 (99d91538)", "1.1.0"},
		{"nerdctl", "", "nerdctl", "nerdctl version 1.7.7", "1.0.0"},
		{"nerdctl", "", "nerdctl", "something else", "1.0.0"},
	} {
		o := rooted(t, map[string]string{containerdConfig: tt.format, "/bin/none": ""})
		if tt.program != "" {
			script := "#!/bin/sh\n[ \"$*\" = --version ] && echo '" + tt.prints + "'\n"
			if err := os.WriteFile(o.Root+"/bin/"+tt.program, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", o.Root+"/bin")
		r, err := Find(tt.word, o)
		if err != nil {
			t.Fatal(err)
		}
		if got, why := r.CNIVersion(t.Context()); got != tt.want || why == "" {
			t.Errorf("%s, %s: %s (%s), want %s", tt.word, tt.prints, got, why, tt.want)
		}
	}
}

// FuzzHCL reads anything, or refuses it.
func FuzzHCL(f *testing.F) {
	for _, seed := range []string{"client {\n cni_path = \"/a:/b\"\n}", `{"client": [{"cni_config_dir": "/x"}]}`, "client {", "a = [1, {b = <<E\nx\nE\n}]", "\x00", `client = "x"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if values, err := readHCL(text); err == nil && values["client"] == nil {
			t.Error("neither values nor an error")
		}
	})
}
