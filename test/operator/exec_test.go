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

func TestExecCodes(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("one")
	o.attach("two")
	dead, _ := o.attach("dead")
	dead.Delete(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"one", "--", "true"}, 0, ""},
		{[]string{"one", "true"}, 0, ""},
		{[]string{"one", "--", "sh", "-c", "exit 7"}, 7, ""},
		{[]string{"one", "--", "sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		{[]string{"one", "--", "echo", "--json", "-i"}, 0, "--json -i"},
		{[]string{"one", "--", "no-such-command"}, 1, "no-such-command"},
		{[]string{"one", "--"}, 2, "argument is missing"},
		{[]string{"one"}, 2, "argument is missing"},
		{[]string{"nobody", "--", "true"}, 1, "nobody"},
		{[]string{"dead", "--", "true"}, 1, "no network namespace any more"},
		{[]string{"demo", "--", "true"}, 1, "demo is no container"},
		{[]string{"/etc/hosts", "--", "true"}, 1, "no network namespace there"},
		{[]string{"/run/no/such", "--", "true"}, 1, "no network namespace there"},
	} {
		if code, printed := o.cnictl(append([]string{"exec"}, c.args...)...); code != c.code || !strings.Contains(printed, c.says) {
			t.Errorf("exec %q: exit code %d\n%s", c.args, code, printed)
		}
	}
}

// TestExecAmbiguous asks which container is meant.
func TestExecAmbiguous(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, id := range []string{"pod-a1", "pod-a2"} {
		o.must("add", "demo", o.host.NewPod(t, id+"-netns").Path(), "--id", id)
	}
	code, printed := o.cnictl("exec", "pod-a", "--", "true")
	if code != 1 || !strings.Contains(printed, "pod-a1/eth0") || !strings.Contains(printed, "pod-a2/eth0") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

// TestExecNames gives the command the name servers of the network.
func TestExecNames(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.network(strings.Replace(demo, `"ipMasq"`, `"dns": {"nameservers": ["192.0.2.53"], "search": ["example.org"]}, "ipMasq"`, 1))
	o.attach("web")
	if out := o.must("exec", "web", "--", "cat", "/etc/resolv.conf"); out != "search example.org\nnameserver 192.0.2.53\n" {
		t.Errorf("resolv.conf inside:\n%s", out)
	}
}

// TestExecPassesSignalsOn ends with the command.
func TestExecPassesSignalsOn(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	cmd := o.host.Command(netlab.Cnictl(o), "exec", "web", "--", "sh", "-c", "trap 'exit 9' HUP; echo up; while :; do sleep 0.01; done")
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
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
}
