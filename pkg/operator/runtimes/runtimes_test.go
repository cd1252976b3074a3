package runtimes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/node"
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
		{"nomad", map[string]string{"/etc/nomad.d/client.json": "{"}, "read the configuration of Nomad: /etc/nomad.d/client.json: ", ""},
		{"nomad", map[string]string{"/etc/nomad.d/client.json": `{"client": [{"cni_config_dir": "/x"}]}`}, "/x [/opt/cni/bin]", "by"},
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
		o.Processes = append(o.Processes, node.Process{PID: cmd.Process.Pid, Name: "containerd", OfNode: true})
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

// TestCNIVersion finds versions in files, and runs nothing.
func TestCNIVersion(t *testing.T) {
	for _, tt := range []struct{ word, format, want string }{
		{"containerd", "version = 3\n", "1.1.0"}, {"containerd", "version = 2\n", "1.0.0"}, {"crio", "", "1.0.0"}, {"podman", "", "1.0.0"}, {"k3s", "", "1.0.0"},
	} {
		o := rooted(t, map[string]string{containerdConfig: tt.format, "/bin/none": ""})
		if err := os.WriteFile(o.Root+"/bin/"+tt.word, []byte("#!/bin/sh\n>>"+o.Root+"/ran\necho v9.9\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", o.Root+"/bin")
		r, err := Find(tt.word, o)
		if err != nil {
			t.Fatal(err)
		}
		if got, why := r.CNIVersion(o); got != tt.want || why == "" {
			t.Errorf("%s %q: %s (%s), want %s", tt.word, tt.format, got, why, tt.want)
		}
		if _, err := os.Stat(o.Root + "/ran"); err == nil {
			t.Errorf("%s was run", tt.word)
		}
	}
}

// TestCouldSetLoopbackUp: containerd 2 can, as its configuration's form or its program says, unless it does already or has no pods.
func TestCouldSetLoopbackUp(t *testing.T) {
	const in2, in3 = containerdConfig + `, in [plugins."io.containerd.grpc.v1.cri".cni]`, containerdConfig + `, in [plugins."io.containerd.cri.v1.runtime".cni]`
	newer := rooted(t, map[string]string{containerdConfig: "version = 2\n", "/main.go": "package main\n\nvar Version string\n\nfunc main() { println(Version) }\n"})
	program := newer.Root + "/bin/containerd"
	build := exec.Command("go", "build", "-ldflags", "-X main.Version=v2.1.4", "-trimpath=false", "-o", program, newer.Root+"/main.go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := errors.Join(os.MkdirAll(newer.Root+newer.Root, 0o755), os.Rename(newer.Root+"/bin", newer.Root+newer.Root+"/bin"), os.Symlink(newer.Root+newer.Root+"/bin", newer.Root+"/bin")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ word, path, text, want string }{
		{"containerd", containerdConfig, "version = 3\n", in3},
		{"containerd", containerdConfig, "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nuse_internal_loopback = false\n", in3},
		{"containerd", containerdConfig, "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nuse_internal_loopback = true\n", ""},
		{"containerd", containerdConfig, "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nuse_internal_loopback = 'true'\n", in3},
		{"containerd", containerdConfig, "version = 3\ndisabled_plugins = ['io.containerd.cri.v1.runtime']\n", ""},
		{"containerd", containerdConfig, "version = 3\ndisabled_plugins = ['io.containerd.nri.v1.nri']\n", in3},
		{"containerd", containerdConfig, "version = 2\n", ""}, // of which containerd is not known
		{"containerd", "/etc/other", "", ""},
		{"k3s", k3s + "/agent/etc/containerd/config.toml", "version = 3\n", ""},
		{"crio", "/etc/crio/crio.conf", "", ""},
	} {
		o := rooted(t, map[string]string{tt.path: tt.text})
		t.Setenv("PATH", o.Root)
		r, err := Find(tt.word, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.CouldSetLoopbackUp(o); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.word, tt.text, got, tt.want)
		}
	}
	// The file of a program says its version, whatever form its configuration has.
	t.Setenv("PATH", filepath.Dir(program))
	for _, files := range [][]string{nil, {containerdConfig}} {
		r, err := Find("containerd", newer)
		if err != nil {
			t.Fatal(err)
		}
		want := in2
		if r.Files = files; files == nil {
			r.format, want = 0, containerdConfig+`, with version = 3, in [plugins."io.containerd.cri.v1.runtime".cni]`
		}
		if got := r.CouldSetLoopbackUp(newer); got != want {
			t.Errorf("containerd 2.1, %q: %q, want %q", files, got, want)
		}
	}
}

// TestVersionOf reads what the makers of a Go program told the linker.
func TestVersionOf(t *testing.T) {
	for _, tt := range []struct {
		main, ldflags string
		want          [2]int
	}{
		{"v1.33.0", "", [2]int{1, 33}}, {"(devel)", "", [2]int{}}, {"v0.0.0-20260101000000-abcdef123456", "-X a/version.Version=v2.1.4", [2]int{2, 1}},
		{"", "-s -w -X github.com/k3s-io/k3s/pkg/version.Version=v1.33.1+k3s1 -X b=c", [2]int{1, 33}}, {"", "-X a/version.Version=1.10.2", [2]int{1, 10}}, {"", "-s", [2]int{}},
	} {
		build := &debug.BuildInfo{Main: debug.Module{Version: tt.main}, Settings: []debug.BuildSetting{{Key: "-ldflags", Value: tt.ldflags}}}
		if got := versionIn(build); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// TestStrangers: what others than root can change is not believed, whoever names it.
func TestStrangers(t *testing.T) {
	const own = "[plugins.'io.containerd.grpc.v1.cri'.cni]\nconf_dir = '/net.d'\nbin_dir = '/bin'\n"
	for name, spoil := range map[string]func(root string) error{
		"a configuration of nobody's":    func(root string) error { return os.Chown(root+containerdConfig, 65534, 65534) },
		"one that all may write":         func(root string) error { return os.Chmod(root+containerdConfig, 0o666) },
		"one in a directory of nobody's": func(root string) error { return os.Chown(root+"/etc/containerd", 65534, 65534) },
		"a link of nobody's": func(root string) error {
			return errors.Join(os.Rename(root+containerdConfig, root+"/etc/c"), os.Symlink("/etc/c", root+containerdConfig), os.Lchown(root+containerdConfig, 65534, 65534))
		},
		"a directory of plugins of nobody's": func(root string) error { return os.Chown(root+"/bin", 65534, 65534) },
		"a directory of networks for all":    func(root string) error { return os.Chmod(root+"/net.d", 0o777) },
		"one for a group":                    func(root string) error { return os.Chmod(root+"/net.d", 0o775) },
		"a pipe": func(root string) error {
			return errors.Join(os.Remove(root+containerdConfig), unix.Mkfifo(root+containerdConfig, 0o600))
		},
		"2 MiB": func(root string) error { return os.Truncate(root+containerdConfig, 2<<20) },
		"a million brackets": func(root string) error {
			return os.WriteFile(root+containerdConfig, append([]byte("a = "), bytes.Repeat([]byte("["), 1<<20-4)...), 0o600)
		},
		"a million names": func(root string) error {
			return os.WriteFile(root+containerdConfig, append(bytes.Repeat([]byte("a."), 1<<19-5), "a = 1"...), 0o600)
		},
	} {
		o := rooted(t, map[string]string{containerdConfig: own, "/bin/bridge": "", "/net.d/10-a.conflist": ""})
		if _, err := Find("containerd", o); err != nil {
			t.Fatal(err)
		}
		if err := spoil(o.Root); err != nil {
			t.Fatal(err)
		}
		if r, err := Find("containerd", o); err == nil {
			t.Errorf("%s: Find has %+v", name, r)
		}
		if list, err := Here(o); len(list) > 0 || err == nil {
			t.Errorf("%s: Here has %+v", name, list)
		}
	}
}

// TestPatternsAreNotOfArguments: a command line names files and no patterns.
func TestPatternsAreNotOfArguments(t *testing.T) {
	o := rooted(t, map[string]string{"/a/1.toml": "", "/a/2.toml": ""})
	c := configurations[0]
	c.files, c.named = nil, []string{"/a/*.toml"}
	if r, err := c.read(o); err != nil || r.Files != nil {
		t.Errorf("%q were read, %v", r.Files, err)
	}
}

func TestHCL(t *testing.T) {
	for text, want := range map[string]string{
		"client {\n  cni_path = \"/a:/b\" # both\n\tcni_config_dir=\"/x\"\n}": "map[client:map[cni_config_dir:/x cni_path:/a:/b]]",
		"client { cni_path = \"/a\" }":                                        "map[client:map[cni_path:/a]]",
		"# cni_path = \"/a\"\n// cni_path = \"/b\"\nmy_cni_path = \"/c\"":     "map[client:map[]]",
		"cni_path = \"${x}\"\ncni_config_dir = \"a":                           "map[client:map[]]",
		"cni_path = \"/a\"\ncni_path = \"/b\"":                                "map[client:map[cni_path:/b]]",
	} {
		if got := fmt.Sprint(readHCL([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
