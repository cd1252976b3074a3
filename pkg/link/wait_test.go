package link

import (
	"fmt"
	"os"
	"path/filepath"
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

// TestStoodStill has a process that waits for a link stand still until its time is over. The link is up by then. A process that has answered before it stands
// still is tried again: it was too fast, or on a busy machine too slow.
func TestStoodStill(t *testing.T) {
	host := netlab.NewHost(t)
	host.MustRun(t, "sh", "-ec", "ip link add near type veth peer name far; ip link set near up")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	netlab.Eventually(t, func() error {
		host.MustRun(t, "ip", "link", "set", "far", "down")
		answer := filepath.Join(t.TempDir(), "answer")
		cmd := host.Command("/proc/self/exe")
		cmd.Path, cmd.Env = self, append(os.Environ(), waiterVariable+"=near")
		var err error
		if cmd.Stdout, err = os.Create(answer); err != nil {
			t.Fatal(err)
		}
		if err := host.Start(cmd); err != nil {
			return err
		}
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Error(err)
		}
		early, _ := os.ReadFile(answer)
		netlab.Pause(portTime)
		host.MustRun(t, "ip", "link", "set", "far", "up")
		_ = cmd.Process.Signal(unix.SIGCONT)
		if err := cmd.Wait(); err != nil || len(early) > 0 {
			return fmt.Errorf("it says %q before it stands still: %v", early, err)
		}
		if got, err := os.ReadFile(answer); string(got) != "up <nil>" {
			t.Errorf("it says %q: %v", got, err)
		}
		return nil
	})
}
