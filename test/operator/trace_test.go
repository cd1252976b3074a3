package operator

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestTraceWatches follows the next packet that a container sends by itself.
func TestTraceWatches(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	web, _ := o.attach("web")
	o.host.MustRun(t, "nft", "add table inet mine; add chain inet mine f { type filter hook forward priority 5; }; add rule inet mine f icmp type echo-request drop")
	cmd := o.host.Command(netlab.Cnictl(t), "trace", "web", "--to", netlab.OutsideIPv4, "--watch")
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := o.host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	netlab.Until(t, "the packet to be traced", func() bool {
		_ = web.Ping(netlab.OutsideIPv4, silence)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(printed.String(), "cause  rule-drops: rule 2 in chain f of table inet mine drops it: icmp type echo-request drop") {
		t.Errorf("exit code %d\n%s", code, &printed)
	}
}

// TestTraceLeavesNothing ends a trace by each signal, one that can't be caught too, in the middle: no table and no link is left of it.
func TestTraceLeavesNothing(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	web, _ := o.attach("web", "-p", "8080:80")
	o.host.MustRun(t, "nft", "add table netdev mine; add chain netdev mine f { type filter hook ingress device uplink0 priority 5; }")
	web.MustRun(t, "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
	state := func() string {
		return o.host.MustRun(t, "nft", "list", "tables") + web.MustRun(t, "nft", "list", "tables") + o.host.MustRun(t, "ip", "-br", "link") + o.host.MustRun(t, "tc", "qdisc")
	}
	before := state()
	for _, args := range [][]string{{"--to", "web"}, {"web", "--to", "192.0.2.77"}, {"web", "--to", netlab.OutsideIPv4, "--watch"}} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
			cmd := o.host.Command(netlab.Cnictl(t), append([]string{"trace", "--timeout", "10m"}, args...)...)
			if err := o.host.Start(cmd); err != nil {
				t.Fatal(err)
			}
			netlab.Until(t, "the tables", func() bool {
				return strings.Count(o.host.MustRun(t, "nft", "list", "tables"), "cnictl-trace") >= 2
			})
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			netlab.Until(t, "the tables and the link to go", func() bool { return state() == before })
		}
	}
}
