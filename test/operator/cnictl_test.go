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

// newOperatorBeside returns its outside, too.
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
