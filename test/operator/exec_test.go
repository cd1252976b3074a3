package operator

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestExec finds a container by all of its names, and runs commands in its network, with the host's files.
func TestExec(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("other")
	pod := o.host.NewPod(t, "web")
	o.must("add", "demo", pod.Path(), "--id", "web-0123456789", "-p", "8080:80")
	_, mac, _ := strings.Cut(pod.MustRun(t, "ip", "-o", "link", "show", "eth0"), "link/ether ")
	mac = mac[:17]
	_, hostEnd, _ := strings.Cut(o.must("show", "web-0123456789", "--json"), `"hostEnd": {`)
	_, hostEnd, _ = strings.Cut(hostEnd, `"name": "`)
	hostEnd, _, _ = strings.Cut(hostEnd, `"`)
	o.host.Feed(t, "the host's\n", "sh", "-c", "cat >/run/file")
	for _, name := range []string{"10.88.0.3", "fd00:88::3", "web-0123456789", "web-0123", "web", "/run/netns/web", mac, hostEnd, "8080", ":8080"} {
		out := o.must("exec", name, "--", "sh", "-c", "ip -o link show eth0; cat /run/file")
		if !strings.Contains(out, mac) || !strings.Contains(out, "the host's") {
			t.Errorf("exec %s printed:\n%s", name, out)
		}
	}
}

// TestExecPassesSignalsOn ends with the command.
func TestExecPassesSignalsOn(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	cmd := o.host.Command(netlab.Cnictl(o), "exec", "web", "--", "sh", "-c", "trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = in
	if err := o.host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
}
