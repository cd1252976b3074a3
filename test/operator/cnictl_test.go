package operator

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// operator is a node on which somebody works with cnictl.
type operator struct {
	*testing.T
	host *netlab.Host
}

// newOperator returns a node with all plugins and the network demo.
func newOperator(t *testing.T) *operator {
	t.Helper()
	host, _ := node(t)
	host.Feed(t, demo, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-demo.conflist")
	return &operator{t, host}
}

// cnictl runs the tool: its exit code, and all that it prints.
func (o *operator) cnictl(args ...string) (code int, printed string) {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = os.Environ(), &out, &out
	_ = o.host.Run(cmd)
	if cmd.ProcessState == nil {
		o.Fatalf("cnictl %q did not start", args)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func (o *operator) must(args ...string) (printed string) {
	o.Helper()
	code, printed := o.cnictl(args...)
	if code != 0 {
		o.Fatalf("cnictl %q: exit code %d\n%s", args, code, printed)
	}
	return printed
}

// attach makes a pod and has cnictl attach it: the pod, and its IPv4 address.
func (o *operator) attach(name string) (pod *netlab.Pod, address string) {
	o.Helper()
	pod = o.host.NewPod(o, name)
	o.must("add", "demo", pod.Path(), "--id", name)
	for field := range strings.FieldsSeq(pod.MustRun(o, "ip", "-4", "-o", "address", "show", "dev", "eth0")) {
		if before, _, ok := strings.Cut(field, "/"); ok && address == "" {
			address = before
		}
	}
	return pod, address
}

// leases returns the names of the leases' files.
func (o *operator) leases() string {
	o.Helper()
	return o.host.MustRun(o, "find", "/var/lib/cni/networks/demo", "-name", "*.*.*.*", "-not", "-name", "last*")
}

// TestCnictlRun has the exit code of the command, and leaves nothing.
func TestCnictlRun(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, c := range []struct {
		shell string
		code  int
	}{{"true", 0}, {"exit 7", 7}, {"exit 1", 1}, {"kill -KILL $$", 128 + 9}, {"kill -TERM $$", 128 + 15}} {
		code, printed := o.cnictl("run", "--net", "demo", "--", "sh", "-c", "ip -4 -o address show dev eth0; "+c.shell)
		if code != c.code || !strings.Contains(printed, "10.88.0.") {
			t.Errorf("%s: exit code %d, want %d\n%s", c.shell, code, c.code, printed)
		}
	}
	if left := o.leases() + o.host.MustRun(t, "ls", "/run/netns"); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// TestCnictlUnheard has cnictl finish what it began though nobody reads what it prints, and say so by its exit code.
func TestCnictlUnheard(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	unheard := func(stdout, stderr bool, args ...string) int {
		cmd := o.host.Command(netlab.Cnictl(o), args...)
		cmd.Env = append(os.Environ(), "CNIBOX_TRACE=1")
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer write.Close()
		_ = read.Close()
		if stdout {
			cmd.Stdout = write
		}
		if stderr {
			cmd.Stderr = write
		}
		_ = o.host.Run(cmd)
		return cmd.ProcessState.ExitCode()
	}
	if code := unheard(false, true, "run", "--net", "demo", "--", "sh", "-c", "yes | head -1; exit 7"); code != 7 {
		t.Errorf("run: exit code %d, want the command's, 7", code)
	}
	if left := o.leases() + o.host.MustRun(t, "ls", "/run/netns"); left != "" {
		t.Errorf("run left behind:\n%s", left)
	}
	pod := o.host.NewPod(t, "web")
	for _, c := range []struct {
		verb string
		code int
	}{{"add", 1}, {"check", 1}, {"del", 1}} {
		if code := unheard(true, true, c.verb, "demo", pod.Path()); code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.verb, code, c.code)
		}
		if has := o.leases() != ""; has != (c.verb != "del") {
			t.Errorf("after %s there is a lease: %v", c.verb, has)
		}
	}
}

// TestCnictlRunTakenID refuses the id of a container that is attached, whose attachment it would take away in the end.
func TestCnictlRunTakenID(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod := o.host.NewPod(t, "elsewhere")
	o.must("add", "demo", pod.Path(), "--id", "web")
	before, inside := o.host.Snapshot(t), pod.Snapshot(t)
	code, printed := o.cnictl("run", "--net", "demo", "--id", "web", "--", "echo", "it ran")
	if code != 1 || !strings.Contains(printed, "web") || strings.Contains(printed, "it ran") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(o.host.Snapshot(t)) + inside.Diff(pod.Snapshot(t)); diff != "" {
		t.Errorf("what was refused changed:\n%s", diff)
	}
}

// TestCnictlOtherNames uses a network whose plugins have other names, and says how they do their work.
func TestCnictlOtherNames(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.install("sym", "--force", "--only", "cnv-bridge,cnv-host-local,cnv-tuning,cnv-portmap")
	o.host.Feed(t, strings.ReplaceAll(demo, `"type": "`, `"type": "cnv-`), "sh", "-c", "cat >/etc/cni/net.d/10-demo.conflist")
	if printed := o.must("status", "demo"); !strings.Contains(printed, "cnv-bridge") || !strings.Contains(printed, "masquerades with") || !strings.Contains(printed, "publishes ports with") {
		t.Errorf("status printed:\n%s", printed)
	}
	pod, address := o.attach("web")
	if err := o.host.Ping(address, timeout); err != nil {
		t.Error(err)
	}
	o.must("check", "demo", pod.Path(), "--id", "web")
	pod.Delete(t)
	o.age()
	o.must("gc", "demo", "--apply")
	if left := o.leases(); left != "" {
		t.Errorf("leases after gc:\n%s", left)
	}
}

// install installs cnibox in the host's directory of plugins: what it prints.
func (o *operator) install(link string, args ...string) (printed string) {
	o.Helper()
	return o.must(append([]string{"install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(o), "--link", link}, args...)...)
}

// TestCnictlInstallOverOthers leaves the files of others alone, or keeps them when it is forced.
func TestCnictlInstallOverOthers(t *testing.T) {
	t.Parallel()
	const dir = netlab.PluginDir
	host := netlab.NewHost(t)
	o := &operator{t, host}
	host.Feed(t, "#!/bin/sh\necho somebody else's\n", "sh", "-c", "mkdir -p "+dir+" && cat >"+dir+"/bridge && chmod +x "+dir+"/bridge")
	before := host.Snapshot(t)
	code, printed := o.cnictl("install", "--dir", dir, "--from", netlab.Cnibox(t))
	if code != 1 || !strings.Contains(printed, "bridge") || !strings.Contains(printed, "--force") {
		t.Errorf("install: exit code %d\n%s", code, printed)
	}
	if diff := before.Diff(host.Snapshot(t)); diff != "" {
		t.Errorf("what was refused changed:\n%s", diff)
	}
	o.must("install", "--dir", dir, "--from", netlab.Cnibox(t), "--force")
	if r := host.Exec(t, "bridge", netlab.PluginCall{Command: "VERSION"}); !strings.Contains(r.Stdout, "supportedVersions") {
		t.Errorf("after install --force: %s", r)
	}
	o.must("uninstall", "--dir", dir)
	if diff := before.Diff(host.Snapshot(t)); diff != "" {
		t.Errorf("after uninstall:\n%s", diff)
	}
}

// TestCnictlInstallOnly keeps the names of an earlier install, for uninstall too. A name may be another one for a plugin.
func TestCnictlInstallOnly(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"sym", "hard", "copy"} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			o := &operator{t, netlab.NewHost(t)}
			o.install(link, "--only", "bridge,host-local")
			o.install(link, "--only", "cnv-bridge,buildkit-cni-host-local")
			o.install(link)
			o.install(link, "--only", "portmap")
			for name, plugin := range map[string]string{"bridge": "bridge", "host-local": "host-local", "portmap": "portmap", "flannel": "flannel",
				"cnv-bridge": "bridge", "buildkit-cni-host-local": "host-local"} {
				if r := o.host.Exec(t, name, netlab.PluginCall{}); r.ExitCode != 0 || !strings.HasPrefix(r.Stderr, "CNI "+plugin+" plugin ") {
					t.Errorf("%s: %v", name, r)
				}
			}
			o.must("uninstall", "--dir", netlab.PluginDir)
			if left := o.host.MustRun(t, "ls", "-A", netlab.PluginDir); left != "" {
				t.Errorf("after uninstall:\n%s", left)
			}
			if code, printed := o.cnictl("install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(t), "--only", "mybridge"); code != 2 || !strings.Contains(printed, "mybridge") {
				t.Errorf("a name that is none: exit code %d\n%s", code, printed)
			}
		})
	}
}

// TestCnictlInstallFlannel makes flannel a file of its own, whatever --link says: flannel's installer writes through links.
func TestCnictlInstallFlannel(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"sym", "hard", "copy"} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			o := &operator{t, netlab.NewHost(t)}
			o.install(link)
			o.host.Feed(t, "#!/bin/sh\necho flannel\n", "sh", "-c", "cat >/run/flannel && cp -f /run/flannel "+netlab.PluginDir+"/flannel")
			if r := o.host.Exec(t, "bridge", netlab.PluginCall{Command: "VERSION"}); !strings.Contains(r.Stdout, "supportedVersions") {
				t.Errorf("bridge, after cp -f over flannel: %v", r)
			}
			if r := o.host.Exec(t, "flannel", netlab.PluginCall{}); r.Stdout != "flannel\n" {
				t.Errorf("flannel, after cp -f over it: %v", r)
			}
			if printed := o.install(link); !strings.Contains(printed, "flannel, written by another installer") {
				t.Errorf("install again printed:\n%s", printed)
			}
			o.must("uninstall", "--dir", netlab.PluginDir)
			if left := o.host.MustRun(t, "ls", "-A", netlab.PluginDir); left != "flannel\n" {
				t.Errorf("after uninstall:\n%s", left)
			}
		})
	}
}

// TestCnictlInstallStaysInside refuses to keep files of others behind a link out of the directory.
func TestCnictlInstallStaysInside(t *testing.T) {
	t.Parallel()
	o := &operator{t, netlab.NewHost(t)}
	const dir, elsewhere = netlab.PluginDir, "/opt/cni/elsewhere"
	o.host.MustRun(t, "sh", "-c", "mkdir -p "+elsewhere+" "+dir+"; echo outside >"+elsewhere+"/bridge; echo theirs >"+dir+"/bridge; ln -s "+elsewhere+" "+dir+"/.cnibox-replaced")
	state := func() string { return o.host.MustRun(t, "sh", "-c", "cd /opt/cni; ls -A . *; cat */bridge") }
	before := state()
	for _, args := range [][]string{{"install", "--dir", dir, "--from", netlab.Cnibox(t), "--force"}, {"uninstall", "--dir", dir}} {
		if code, printed := o.cnictl(args...); code != 1 || !strings.Contains(printed, ".cnibox-replaced") {
			t.Errorf("%s: exit code %d\n%s", args[0], code, printed)
		}
	}
	if after := state(); after != before {
		t.Errorf("what was refused changed:\n%s\nbefore:\n%s", after, before)
	}
	o.host.MustRun(t, "rm", dir+"/.cnibox-replaced")
	o.install("sym", "--force")
	o.must("uninstall", "--dir", dir)
	o.host.MustRun(t, "ln", "-s", elsewhere, dir+"/.cnibox-replaced")
	if after := state(); after != before {
		t.Errorf("after uninstall:\n%s\nbefore:\n%s", after, before)
	}
}

// TestCnictlInstallNoExec says that plugins can't be executed where they are installed.
func TestCnictlInstallNoExec(t *testing.T) {
	t.Parallel()
	o := &operator{t, netlab.NewHost(t)}
	if printed := o.install("sym"); strings.Contains(printed, "noexec") {
		t.Errorf("install in a directory as any other printed:\n%s", printed)
	}
	o.host.MustRun(t, "mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", netlab.PluginDir)
	for range 2 {
		if printed := o.install("sym"); !strings.Contains(printed, "noexec") {
			t.Errorf("install in a directory mounted noexec printed:\n%s", printed)
		}
	}
}
