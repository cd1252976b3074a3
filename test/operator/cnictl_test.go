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
	o, _ := newOperatorBeside(t)
	return o
}

// newOperatorBeside is newOperator with the outside of the node.
func newOperatorBeside(t *testing.T) (*operator, *netlab.Outside) {
	t.Helper()
	host, outside := node(t)
	host.Feed(t, demo, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-demo.conflist")
	return &operator{t, host}, outside
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

// attach makes a pod and has cnictl attach it, with more flags: the pod, and its IPv4 address.
func (o *operator) attach(name string, flags ...string) (pod *netlab.Pod, address string) {
	o.Helper()
	pod = o.host.NewPod(o, name)
	o.must(append([]string{"add", "demo", pod.Path(), "--id", name}, flags...)...)
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
	if code := unheard(false, true, "run", "--network", "demo", "--", "sh", "-c", "yes | head -1; exit 7"); code != 7 {
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

// install installs cnibox in the host's directory of plugins: what it prints.
func (o *operator) install(link string, args ...string) (printed string) {
	o.Helper()
	return o.must(append([]string{"install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(o), "--link", link}, args...)...)
}
