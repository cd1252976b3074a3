package e2e

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

// TestCnictlGC removes the attachments of a namespace that is gone, and nothing of one that is in use.
func TestCnictlGC(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	_, kept := o.attach("live")
	gone, removed := o.attach("gone")
	gone.Delete(t)
	o.must("gc", "demo")
	if err := o.host.Ping(kept, timeout); err != nil {
		t.Errorf("after gc the attachment that is in use does not answer: %v", err)
	}
	if left := o.leases(); !strings.Contains(left, "/"+kept+"\n") || strings.Contains(left, "/"+removed+"\n") {
		t.Errorf("leases after gc, of %s in use and %s gone:\n%s", kept, removed, left)
	}
}

// TestCnictlGCAll removes what plugins hold of attachments that libcni has forgotten.
func TestCnictlGCAll(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod, _ := o.attach("web")
	o.host.MustRun(t, "rm", "-r", "/var/lib/cni/results")
	o.must("gc", "demo", "--all")
	if left := o.leases(); left != "" {
		t.Errorf("leases after gc --all:\n%s", left)
	}
	if _, err := pod.Output(pod.Command("ip", "link", "show", "eth0")); err == nil {
		t.Error("after gc --all the container has its interface")
	}
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

// TestCnictlInstallOverOthers leaves the files of others alone, or keeps them when it is forced.
func TestCnictlInstallOverOthers(t *testing.T) {
	t.Parallel()
	const dir = "/opt/cni/bin"
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
