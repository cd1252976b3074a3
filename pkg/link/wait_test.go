package link

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/test/netlab"
)

// waiterVariable names a link that a process of the test waits for.
const waiterVariable = "LINK_WAITER"

func TestMain(m *testing.M) {
	name := os.Getenv(waiterVariable)
	if name == "" {
		netlab.Main(m)
		return
	}
	state, err := WaitUp(&netlink.Handle{}, name)
	fmt.Printf("%v %v", state, err)
}

// hearsOfLinks matches a socket of RTMGRP_LINK in a list of netlink's: its third number is that of the process, and then come its groups.
var hearsOfLinks = regexp.MustCompile(`(?m)^\S+\s+0\s+\d+\s+00000001\s`)

// TestStoodStill has a process that waits for a link stand still until its time is over. The link is up by then.
func TestStoodStill(t *testing.T) {
	host := netlab.NewHost(t)
	host.MustRun(t, "sh", "-ec", "ip link add near type veth peer name far; ip link set near up")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := host.Command("/proc/self/exe")
	cmd.Path, cmd.Env = self, append(os.Environ(), waiterVariable+"=near")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = host.Start(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	netlab.Until(t, "it to hear of links", func() bool { return hearsOfLinks.MatchString(host.MustRun(t, "cat", "/proc/net/netlink")) })
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	netlab.Pause(portTime)
	host.MustRun(t, "ip", "link", "set", "far", "up")
	_ = cmd.Process.Signal(syscall.SIGCONT)
	if said, err := io.ReadAll(out); err != nil || string(said) != "up <nil>" {
		t.Errorf("it says %q, %v", said, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
