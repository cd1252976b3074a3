package link

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// waiterVariable names a link that a process of the test waits for.
const waiterVariable = "CNIBOX_TEST_WAIT"

func TestMain(m *testing.M) {
	name := os.Getenv(waiterVariable)
	if name == "" {
		netlab.Main(m)
		return
	}
	go standStill()
	state, err := WaitUp(&netlink.Handle{}, name)
	fmt.Printf("%v %v", state, err)
}

// hearsOfLinks matches a socket of RTMGRP_LINK in a list of netlink's: its third number is that of the process, and then come its groups.
var hearsOfLinks = regexp.MustCompile(`(?m)^\S+\s+0\s+\d+\s+00000001\s`)

// standStill stops this process when it has waited for a moment.
func standStill() {
	for {
		if sockets, _ := os.ReadFile("/proc/net/netlink"); hearsOfLinks.Match(sockets) {
			netlab.Pause(lostTime / 2) // between two looks
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			return
		}
	}
}

// TestStoodStill has a process that waits for a link stand still until its time is over. The link is up by then. On a busy machine the time may be over
// before that.
func TestStoodStill(t *testing.T) {
	host := netlab.NewHost(t)
	host.MustRun(t, "sh", "-ec", "ip link add near type veth peer name far; ip link set near up")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, func() error {
		host.MustRun(t, "ip", "link", "set", "far", "down")
		cmd := host.Command("/proc/self/exe")
		cmd.Path, cmd.Env = self, append(os.Environ(), waiterVariable+"=near")
		var said bytes.Buffer
		cmd.Stdout = &said
		if err := host.Start(cmd); err != nil {
			return err
		}
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Error(err)
		}
		netlab.Pause(portTime)
		host.MustRun(t, "ip", "link", "set", "far", "up")
		_ = cmd.Process.Signal(unix.SIGCONT)
		if err := cmd.Wait(); err != nil {
			return err
		}
		if said.String() != "up <nil>" {
			return fmt.Errorf("it says %q", &said)
		}
		return nil
	})
}
