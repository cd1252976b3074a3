package netlab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// initScript becomes the first process of a PID namespace, whose end is everybody's. Its children need no wait(2), as SIGCHLD is ignored,
// and mount(8) leaves no notes in /run.
const initScript = "mount -n -t proc proc /proc && echo ready && trap '' CHLD && exec sleep infinity"

// unsharePIDs puts the children of the calling thread into a new PID namespace.
func unsharePIDs() error {
	_, _ = os.FindProcess(1) // Go looks once whether there are pidfds, with a child, which must not be the first process
	if err := unix.Unshare(unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("unshare the PID namespace: %w", err)
	}
	return nil
}

// startInit starts the first process of a PID namespace, which runs initScript, and returns when there is its /proc.
func startInit(init *exec.Cmd, start func(*exec.Cmd) error) error {
	ready, err := init.StdoutPipe()
	if err == nil {
		err = start(init)
	}
	if err != nil {
		return fmt.Errorf("start the first process of a PID namespace: %w", err)
	}
	if said, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		return fmt.Errorf("mount /proc for a PID namespace: %w, %v: %q", err, init.Wait(), said)
	}
	return nil
}

// OwnProcesses gives the Host a PID namespace and a /proc of its own: what runs on it sees no process of other Hosts, of the machine, or of the test. It is
// to be called before anything is started on the Host. A function that Do runs has no /proc/self there.
func (h *Host) OwnProcesses(t testing.TB) {
	t.Helper()
	init := exec.Command("sh", "-c", initScript)
	err := h.node.on(h.netns, unsharePIDs)
	if err == nil {
		err = startInit(init, h.Start)
	}
	if err == nil {
		h.node.init = init
		h.node.pidns, err = os.Open(fmt.Sprintf("/proc/%d/ns/pid", init.Process.Pid))
	}
	if err != nil {
		t.Fatal("give a host processes of its own: ", err)
	}
}

// PID returns the number by which the Host's processes know one that a test has started there (NSpid of proc_pid_status(5)).
func (h *Host) PID(t testing.TB, cmd *exec.Cmd) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(after, "\n")
	numbers := strings.Fields(line)
	own := 0 // the place of the number that the Host's /proc has; the first one is the test's
	if h.node.init != nil {
		own = 1
	}
	if len(numbers) <= own {
		t.Fatalf("process %d is not the host's: NSpid %q", cmd.Process.Pid, line)
	}
	pid, err := strconv.Atoi(numbers[own])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// endInit ends the node's PID namespace, and with it all processes that are in it.
func (n *node) endInit() {
	if n.init != nil {
		_, _, _ = n.init.Process.Kill(), n.init.Wait(), n.pidns.Close()
	}
}
